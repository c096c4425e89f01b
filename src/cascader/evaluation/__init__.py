"""Rank the gold answers, compute metrics from the ranks, and test whether two models differ."""

from cascader.evaluation.comparison import Comparison, Difference, compare
from cascader.evaluation.evaluation import Evaluation, Filtering
from cascader.evaluation.metrics import METRICS, Metrics, Ranks, rank_golds, relation_kinds, slices_of
from cascader.evaluation.protocol import evaluate

__all__ = [
    "METRICS",
    "Comparison",
    "Difference",
    "Evaluation",
    "Filtering",
    "Metrics",
    "Ranks",
    "compare",
    "evaluate",
    "rank_golds",
    "relation_kinds",
    "slices_of",
]
