"""Knowledge graph link prediction: an embedding proposes answers, language models rerank them.

The public names are listed in `__init__.pyi` and loaded on first use, so that `import cascader` stays fast.

>>> import cascader
>>> kg = cascader.KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
>>> len(kg.entities), len(kg.relations), len(kg.train)
(3, 1, 2)
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
