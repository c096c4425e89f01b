"""The graph, the queries asked of it, and the answers it already knows."""

from cascader.graph.arrays import Array, BoolArray, Candidates, FloatArray, IntArray, Triples
from cascader.graph.knowledge_graph import SPLITS, Entity, KnowledgeGraph, Relation, SplitName
from cascader.graph.names import NameIndex
from cascader.graph.queries import KnownAnswers, Queries, Side

__all__ = [
    "SPLITS",
    "Array",
    "BoolArray",
    "Candidates",
    "Entity",
    "FloatArray",
    "IntArray",
    "KnowledgeGraph",
    "KnownAnswers",
    "NameIndex",
    "Queries",
    "Relation",
    "Side",
    "SplitName",
    "Triples",
]
