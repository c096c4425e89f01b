"""Load pruners from JSON and arrays, never from pickles."""

from collections.abc import Mapping
from typing import Any

from cascader.cascade.pruners.budgeted import BudgetedTopK
from cascader.cascade.pruners.conformal import ConformalTopK
from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.pruner import Pruner
from cascader.cascade.pruners.top_k import Capped, StaticTopK, TopK
from cascader.errors import DataError

PRUNERS: dict[str, type[TopK | StaticTopK | DynamicTopK | ConformalTopK | BudgetedTopK | Capped]] = {
    pruner.kind: pruner for pruner in (Capped, TopK, StaticTopK, DynamicTopK, ConformalTopK, BudgetedTopK)
}


def load_pruner(saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> Pruner:
    """Rebuild a pruner from its `as_dict()` and `tensors()`; it keeps exactly the same candidates.

    >>> load_pruner({"pruner": "top_k", "k": 50}, {})
    TopK(k=50)
    """
    name = saved.get("pruner")
    if name not in PRUNERS:
        raise DataError(f"there is no pruner {name!r}, expected one of: {', '.join(PRUNERS)}.")
    try:
        return PRUNERS[name].load(saved, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"the {name} pruner is incomplete: {error}. Fit it and save it again.") from error
