"""Numbers as JSON can hold them."""

import math
from typing import Any

import numpy as np

from cascader.graph import FloatArray

_FEWEST = 3  # pairs of numbers: two always lie on a line


def left_out(why: str) -> dict[str, str]:
    """An analysis that cannot be made, with a sentence that says why."""
    return {"left_out": why}


def plain(value: Any) -> Any:  # noqa: ANN401 - anything that JSON can hold once numpy's types are gone
    """The same with Python's own numbers, six digits each; JSON has no NaN and no infinity, which become null.

    >>> plain({"mrr": np.float64(0.123456789), "k": [np.int64(3), np.inf]})
    {'mrr': 0.123457, 'k': [3, None]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def pearson(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's correlation coefficient; None where one of the two never changes, or there are too few.

    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    1.0
    """
    if len(first) < _FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1].round(12))
