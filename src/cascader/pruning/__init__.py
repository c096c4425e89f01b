"""Which candidates go on to the next tier: the same number for all, or as many as a question needs."""

from cascader.pruning.at_most import AtMost
from cascader.pruning.choosing import best_first
from cascader.pruning.conformal import ConformalTopK
from cascader.pruning.dynamic import DynamicTopK
from cascader.pruning.keeping import load_pruner
from cascader.pruning.pruner import Pruner
from cascader.pruning.seen import Seen, seen_by
from cascader.pruning.static import StaticTopK, TopK
from cascader.pruning.thrifty import ThriftyTopK

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
