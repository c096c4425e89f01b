"""How far probabilities are from what comes true."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Answers that are about equally probable."""

    answers: int
    predicted: float  # the mean probability
    found: float  # the share of golds


@dataclass(frozen=True)
class Reliability:
    """What was seen on answers to questions that nothing was fitted to, and no curve was chosen on."""

    questions: int
    answers: int
    golds: int
    error_before: float  # the expected calibration error if a score's share were taken for a probability
    error_after: float  # and that of the probabilities
    before: tuple[Bin, ...]
    after: tuple[Bin, ...]

    @classmethod
    def of(cls, shares: FloatArray, probabilities: FloatArray, is_gold: BoolArray, questions: int) -> "Reliability":
        """Measure on the answers of so many questions, (answers,) each."""
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
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Reliability":
        """What `as_dict` gave."""
        bins = {name: tuple(Bin(**each) for each in saved[name]) for name in ("before", "after")}
        return cls(**{**saved, **bins})


def bins_of(probabilities: FloatArray, is_gold: BoolArray, bins: int = BINS) -> tuple[Bin, ...]:
    """Answers from the least probable to the most, in bins with equally many.

    >>> bins_of(np.array([0.9, 0.1, 0.2, 0.7]), np.array([True, False, False, False]), bins=2)
    (Bin(answers=2, predicted=0.15, found=0.0), Bin(answers=2, predicted=0.8, found=0.5))
    """
    return tuple(
        Bin(len(places), round(float(probabilities[places].mean()), 12), float(is_gold[places].mean()))
        for places in _equal_bins(probabilities, bins)
    )


def expected_calibration_error(probabilities: FloatArray, is_gold: BoolArray, bins: int = BINS) -> float:
    """The mean distance between probability and share of golds, over bins with equally many answers.

    >>> expected_calibration_error(np.array([0.5, 0.5]), np.array([True, False]), bins=1)
    0.0
    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]), bins=1)
    0.4
    """
    distances = [each.answers * abs(each.predicted - each.found) for each in bins_of(probabilities, is_gold, bins)]
    return round(sum(distances) / max(len(is_gold), 1), 12)


def _equal_bins(probabilities: FloatArray, bins: int) -> Iterator[IntArray]:
    """Places of the least probable answers, of the next, and so on; fewer bins where there are too few answers."""
    order = np.argsort(probabilities, kind="stable")
    yield from (places for places in np.array_split(order, bins) if len(places))
