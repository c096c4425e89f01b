"""Which candidates go on to the next tier: the same number for all, or as many as a question needs."""

from cascader.cascade.pruners.budgeted import BudgetedTopK
from cascader.cascade.pruners.capped import Capped
from cascader.cascade.pruners.conformal import ConformalTopK
from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples
from cascader.cascade.pruners.pruner import Pruner
from cascader.cascade.pruners.registry import load_pruner
from cascader.cascade.pruners.scored_queries import ScoredQueries, score_in_blocks
from cascader.cascade.pruners.selection import top_candidates
from cascader.cascade.pruners.static import StaticTopK, TopK

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
