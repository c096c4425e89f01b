"""Measure how far probabilities are from the observed share of gold answers."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray

BINS = 15


@dataclass(frozen=True)
class Bin:
    """A group of answers that are about equally probable."""

    answers: int
    predicted: float  # the mean probability
    found: float  # the share of golds


@dataclass(frozen=True)
class Reliability:
    """How reliable probabilities are, on questions that no curve was fitted to or chosen on."""

    questions: int
    answers: int
    golds: int
    error_before: float  # the expected calibration error when softmax shares are taken as probabilities
    error_after: float  # the expected calibration error of the probabilities
    before: tuple[Bin, ...]
    after: tuple[Bin, ...]

    @classmethod
    def of(cls, shares: FloatArray, probabilities: FloatArray, is_gold: BoolArray, questions: int) -> "Reliability":
        """Measure the reliability on the answers to a number of questions; arrays are (answers,)."""
        return cls(
            questions=questions,
            answers=len(is_gold),
            golds=int(is_gold.sum()),
            error_before=expected_calibration_error(shares, is_gold),
            error_after=expected_calibration_error(probabilities, is_gold),
            before=bins_of(shares, is_gold),
            after=bins_of(probabilities, is_gold),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the reliability as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Reliability":
        """Rebuild it from `as_dict()`."""
        bins = {name: tuple(Bin(**each) for each in saved[name]) for name in ("before", "after")}
        return cls(**{**saved, **bins})


def bins_of(probabilities: FloatArray, is_gold: BoolArray, bins: int = BINS) -> tuple[Bin, ...]:
    """Group answers from the least to the most probable, in bins of equal size.

    >>> bins_of(np.array([0.9, 0.1, 0.2, 0.7]), np.array([True, False, False, False]), bins=2)
    (Bin(answers=2, predicted=0.15, found=0.0), Bin(answers=2, predicted=0.8, found=0.5))
    """
    return tuple(
        Bin(len(places), round(float(probabilities[places].mean()), 12), float(is_gold[places].mean()))
        for places in _equal_bins(probabilities, bins)
    )


def expected_calibration_error(probabilities: FloatArray, is_gold: BoolArray, bins: int = BINS) -> float:
    """Compute the mean distance between probability and share of golds, over bins of equal size.

    >>> expected_calibration_error(np.array([0.5, 0.5]), np.array([True, False]), bins=1)
    0.0
    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]), bins=1)
    0.4
    """
    distances = [each.answers * abs(each.predicted - each.found) for each in bins_of(probabilities, is_gold, bins)]
    return round(sum(distances) / max(len(is_gold), 1), 12)


def _equal_bins(probabilities: FloatArray, bins: int) -> Iterator[IntArray]:
    """Yield the positions of the answers in each bin, least probable first; fewer bins if there are too few answers."""
    order = np.argsort(probabilities, kind="stable")
    yield from (places for places in np.array_split(order, bins) if len(places))
