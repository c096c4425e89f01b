"""Pruners decide how many candidates the next tier scores: a fixed number, or as many as each query needs."""

from collections.abc import Mapping
from typing import Any

from cascader.cascade.pruners.dynamic import BudgetedTopK, ConformalTopK, DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries, score_in_blocks
from cascader.cascade.pruners.pruner import Capped, Pruner, StaticTopK, TopK, top_candidates
from cascader.errors import DataError, SettingsError

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

PRUNERS: dict[str, type[TopK | StaticTopK | DynamicTopK | ConformalTopK | BudgetedTopK | Capped]] = {
    pruner.kind: pruner for pruner in (Capped, TopK, StaticTopK, DynamicTopK, ConformalTopK, BudgetedTopK)
}


def load_pruner(saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> Pruner:
    """Rebuild a pruner from its `as_dict()` and `tensors()`; it keeps exactly the same candidates.

    >>> load_pruner({"pruner": "top_k", "k": 50}, {})
    TopK(k=50)
    """
    name = saved.get("pruner")
    if not isinstance(name, str) or name not in PRUNERS:
        raise DataError(f"there is no pruner {name!r}, expected one of: {', '.join(PRUNERS)}.")
    try:
        return PRUNERS[name].load(saved, tensors)
    except (SettingsError, KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"the {name} pruner is incomplete: {reason}. Fit it and save it again.") from error
