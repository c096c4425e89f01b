"""Which candidates go on to the next tier: the same number for all, or as many as a question needs."""

from cascader.cascade.pruners.budgeted import ThriftyTopK
from cascader.cascade.pruners.capped import AtMost
from cascader.cascade.pruners.conformal import ConformalTopK
from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.pruner import Pruner
from cascader.cascade.pruners.registry import load_pruner
from cascader.cascade.pruners.scored_queries import Seen, seen_by
from cascader.cascade.pruners.selection import best_first
from cascader.cascade.pruners.static import StaticTopK, TopK

__all__ = [
    "AtMost",
    "ConformalTopK",
    "DynamicTopK",
    "Pruner",
    "Seen",
    "StaticTopK",
    "ThriftyTopK",
    "TopK",
    "best_first",
    "load_pruner",
    "seen_by",
]
