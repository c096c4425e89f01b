"""Numbers that fit into JSON, and a few that every section computes in the same way."""

import math
from typing import Any

import numpy as np

from cascader.graph import FloatArray

_MIN_SAMPLES = 3  # a line through two points always fits


def skipped(reason: str) -> dict[str, str]:
    """The numbers of a section that cannot be computed: one sentence that says why."""
    return {"skipped": reason}


def jsonable(value: object) -> Any:  # noqa: ANN401 - anything that JSON can hold once NumPy's types are gone
    """Convert NumPy values to plain Python with six significant digits; NaN and infinity become None.

    >>> jsonable({"mrr": np.float64(0.123456789), "k": [np.int64(3), np.inf]})
    {'mrr': 0.123457, 'k': [3, None]}
    """
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [jsonable(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def pearson(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's correlation coefficient; None if either side is constant or there are too few samples.

    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    1.0
    """
    if len(first) < _MIN_SAMPLES or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1].round(12))
