"""Graphs by name and from files, into and out of every format that people use."""

from pathlib import Path

from cascader.datasets.catalog import CATALOG, Counts, Dataset, load_dataset
from cascader.datasets.download import Source, fetch, locate
from cascader.datasets.frames import Frame, graph_from_frames, to_frame, triples_of
from cascader.datasets.readers import read_graph
from cascader.datasets.splits import Split, split_triples
from cascader.datasets.wordnet import read_wordnet
from cascader.datasets.writers import FORMATS, Format, write_graph
from cascader.graph import KnowledgeGraph

__all__ = [
    "CATALOG",
    "FORMATS",
    "Counts",
    "Dataset",
    "Format",
    "Frame",
    "Source",
    "Split",
    "fetch",
    "graph_from_frames",
    "load_dataset",
    "locate",
    "open_graph",
    "read_graph",
    "read_wordnet",
    "split_triples",
    "to_frame",
    "triples_of",
    "write_graph",
]


def open_graph(name_or_path: str | Path) -> KnowledgeGraph:
    """A graph of the catalog by its name, or people's own by its path; a path with that name goes first.

    >>> import tempfile
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_graph(kg, f"{folder}/drugs")
    ...     open_graph(path).name  # or open_graph("codex-s")
    'drugs'
    """
    if not Path(name_or_path).exists() and str(name_or_path).lower() in CATALOG:
        return load_dataset(str(name_or_path))
    return read_graph(name_or_path)
