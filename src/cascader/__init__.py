"""Knowledge graph link prediction: an embedding proposes, language models rerank.

The public names are loaded when they are first used, so that `import cascader` stays light.

>>> import cascader
>>> kg = cascader.KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
>>> len(kg.entities), len(kg.relations), len(kg.train)
(3, 1, 2)
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cascader.cascade import Alpha, Cascade, Fusion
    from cascader.cascade.pruners import BudgetedTopK, ConformalTopK, DynamicTopK, StaticTopK, TopK
    from cascader.datasets import Split, graph_from_frames, load_dataset, open_graph, read_graph, to_frame, write_graph
    from cascader.errors import CascaderError, DataError, MissingExtraError, StorageError, UnknownNameError
    from cascader.evaluation import Comparison, Evaluation, Metrics, compare, evaluate
    from cascader.graph import Candidates, Entity, KnowledgeGraph, KnownAnswers, Queries, Relation, Side
    from cascader.models import Frequency
    from cascader.models.embeddings import RESCAL, ComplEx, RotatE, TransE
    from cascader.models.text import CrossEncoder, DualEncoder
    from cascader.runs import Prediction, Run, Verdict, load_run, save_run
    from cascader.scoring.scorer import Scorer
    from cascader.tuning import Budget, tune, tune_alpha

_HOMES = {
    "cascader.cascade": ("Alpha", "Cascade", "Fusion"),
    "cascader.datasets": (
        "Split",
        "graph_from_frames",
        "load_dataset",
        "open_graph",
        "read_graph",
        "to_frame",
        "write_graph",
    ),
    "cascader.errors": (
        "CascaderError",
        "DataError",
        "MissingExtraError",
        "StorageError",
        "UnknownNameError",
    ),
    "cascader.evaluation": ("Comparison", "Evaluation", "Metrics", "compare", "evaluate"),
    "cascader.graph": (
        "Candidates",
        "Entity",
        "KnowledgeGraph",
        "KnownAnswers",
        "Queries",
        "Relation",
        "Side",
    ),
    "cascader.models": ("Frequency",),
    "cascader.models.embeddings": ("RESCAL", "ComplEx", "RotatE", "TransE"),
    "cascader.models.text": ("CrossEncoder", "DualEncoder"),
    "cascader.cascade.pruners": ("ConformalTopK", "DynamicTopK", "StaticTopK", "BudgetedTopK", "TopK"),
    "cascader.runs": ("Prediction", "Run", "Verdict", "load_run", "save_run"),
    "cascader.scoring.scorer": ("Scorer",),
    "cascader.tuning": ("Budget", "tune", "tune_alpha"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "RESCAL",
    "Alpha",
    "Budget",
    "Candidates",
    "Cascade",
    "CascaderError",
    "Comparison",
    "ComplEx",
    "ConformalTopK",
    "CrossEncoder",
    "DataError",
    "DualEncoder",
    "DynamicTopK",
    "Entity",
    "Evaluation",
    "Frequency",
    "Fusion",
    "KnowledgeGraph",
    "KnownAnswers",
    "Metrics",
    "MissingExtraError",
    "Prediction",
    "Queries",
    "Relation",
    "RotatE",
    "Run",
    "Scorer",
    "Side",
    "Split",
    "StaticTopK",
    "StorageError",
    "BudgetedTopK",
    "TopK",
    "TransE",
    "UnknownNameError",
    "Verdict",
    "__version__",
    "compare",
    "evaluate",
    "graph_from_frames",
    "load_dataset",
    "load_run",
    "open_graph",
    "read_graph",
    "save_run",
    "to_frame",
    "tune",
    "tune_alpha",
    "write_graph",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cascader' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
