"""Load graphs by name and from files, and save them in the formats that people use."""

from cascader.datasets.benchmarks import read_wordnet
from cascader.datasets.catalog import CATALOG, Counts, Dataset
from cascader.datasets.download import Source, fetch, locate
from cascader.datasets.files import FORMATS, Format, load_graph, save_graph
from cascader.datasets.frames import Frame, graph_from_frames, to_frame, triples_of
from cascader.datasets.libraries import graph_from_networkx, graph_from_pykeen, to_networkx, to_pykeen
from cascader.datasets.triples import Split, split_triples

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
    "graph_from_networkx",
    "graph_from_pykeen",
    "load_graph",
    "locate",
    "read_wordnet",
    "save_graph",
    "split_triples",
    "to_frame",
    "to_networkx",
    "to_pykeen",
    "triples_of",
]
