"""How far probabilities are from what comes true."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """What was seen on answers that nothing was fitted to."""

    answers: int
    golds: int
    error_before: float  # the expected calibration error if a score's share were taken for a probability
    error_after: float  # and that of the probabilities
    predicted: tuple[float, ...]  # (bins,) the mean probability
    found: tuple[float, ...]  # (bins,) the share of golds

    @classmethod
    def of(cls, shares: FloatArray, probabilities: FloatArray, is_gold: BoolArray) -> "Reliability":
        """Measure on answers, (answers,) each."""
        bins = list(_equal_bins(probabilities))
        return cls(
            answers=len(is_gold),
            golds=int(is_gold.sum()),
            error_before=expected_calibration_error(shares, is_gold),
            error_after=expected_calibration_error(probabilities, is_gold),
            predicted=tuple(float(probabilities[places].mean()) for places in bins),
            found=tuple(float(is_gold[places].mean()) for places in bins),
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Reliability":
        """What `as_dict` gave."""
        return cls(**{**saved, "predicted": tuple(saved["predicted"]), "found": tuple(saved["found"])})


def expected_calibration_error(probabilities: FloatArray, is_gold: BoolArray, bins: int = BINS) -> float:
    """The mean distance between probability and share of golds, over bins with equally many answers.

    >>> expected_calibration_error(np.array([0.5, 0.5]), np.array([True, False]), bins=1)
    0.0
    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]), bins=1)
    0.4
    """
    distances = [
        len(places) * abs(probabilities[places].mean() - is_gold[places].mean())
        for places in _equal_bins(probabilities, bins)
    ]
    return round(float(sum(distances) / max(len(is_gold), 1)), 12)


def _equal_bins(probabilities: FloatArray, bins: int = BINS) -> Iterator[IntArray]:
    """Places of the least probable answers, of the next, and so on; fewer bins where there are too few answers."""
    order = np.argsort(probabilities, kind="stable")
    yield from (places for places in np.array_split(order, bins) if len(places))
