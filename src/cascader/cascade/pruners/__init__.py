"""Pruners decide how many candidates the next tier scores: a fixed number, or as many as each query needs."""

from cascader.cascade.pruners.budgeted import BudgetedTopK
from cascader.cascade.pruners.conformal import ConformalTopK
from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries, score_in_blocks
from cascader.cascade.pruners.pruner import Pruner, top_candidates
from cascader.cascade.pruners.registry import load_pruner
from cascader.cascade.pruners.top_k import Capped, StaticTopK, TopK

__all__ = [
    "Capped",
    "ConformalTopK",
    "DynamicTopK",
    "Examples",
    "Pruner",
    "ScoredQueries",
    "StaticTopK",
    "BudgetedTopK",
    "TopK",
    "top_candidates",
    "load_pruner",
    "score_in_blocks",
]
