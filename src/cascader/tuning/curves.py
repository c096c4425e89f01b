"""Curves from evidence to probability that never fall as the score rises, and how reliable probabilities are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Len
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logsumexp

from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray
from cascader.records import Count, Share

#: The columns of the evidence. The first two rise with the entity's score; the last describes the whole question.
EVIDENCE = ("share", "rank", "answers")
RISING = (True, True, False)
#: Standardized scores are multiplied by this before the softmax: otherwise the best answers look alike.
_SHARPNESS = 2.0


def evidence(scores: FloatArray, is_known: BoolArray, places: IntArray | slice = slice(None)) -> FloatArray:  # noqa: B008
    """Compute the evidence for entities as the answer to one question; two (entities,) arrays give (places, 3).

    The columns are the logarithm of the entity's softmax share among entities that are not known answers, after the
    scores are standardized; minus the logarithm of its rank among them; and the logarithm of the number of known
    answers. A known answer gets the values it would have if it were not known.

    >>> evidence(np.array([3.0, 1.0, 2.0]), np.array([False, False, True])).round(2).tolist()
    [[-0.02, -0.0, 0.69], [-4.02, -0.69, 0.69], [-2.02, -0.41, 0.69]]
    """
    own, new = scores[places].astype(np.float64), scores[~is_known].astype(np.float64)
    answers = np.full(len(own), np.log1p(is_known.sum()))
    if len(new) == 0:
        return np.stack([np.zeros(len(own)), np.zeros(len(own)), answers], axis=1)
    return np.stack([_log_share(own, new), -np.log(_rank(own, new)), answers], axis=1)


def _log_share(scores: FloatArray, new: FloatArray) -> FloatArray:
    center, spread = new.mean(), new.std()
    scale = 1 if spread <= 1e-6 * (1 + abs(center)) else spread  # or all scores are equal up to float32 rounding
    stretched, others = (_SHARPNESS * (some - center) / scale for some in (scores, new))
    # A share is at most 1; only a known answer that would rank first can exceed that.
    return np.minimum(stretched - logsumexp(others), 0.0)


def _rank(scores: FloatArray, new: FloatArray) -> FloatArray:
    """Compute the mean rank among new answers: equal scores must have equal probabilities."""
    ascending = np.sort(new)
    not_above = np.searchsorted(ascending, scores, side="right")
    equal = not_above - np.searchsorted(ascending, scores, side="left")
    return len(ascending) - not_above + (equal + 1) / 2


#: Keeps weights finite if the evidence separates all golds from the rest.
_PENALTY = 0.01


@dataclass(frozen=True)
class Curve:
    """Maps a weighted sum of the evidence to a probability, by the logistic function or by steps.

    >>> curve = Curve(weights=(1.0, 0.0, 0.0), intercept=0.0)
    >>> curve.probabilities(np.array([[0.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])).round(3).tolist()
    [0.5, 0.119]
    """

    weights: Annotated[tuple[float, ...], Len(len(EVIDENCE), len(EVIDENCE))]
    intercept: float
    sums: tuple[float, ...] = ()  # where steps start and end, ascending
    values: tuple[Share, ...] = ()  # the probability at each, never falling

    def __post_init__(self) -> None:
        is_rising = all(list(steps) == sorted(steps) for steps in (self.sums, self.values))
        if len(self.sums) != len(self.values) or not is_rising:
            raise DataError("the steps of a curve fall, or are not as many as its values.")

    @property
    def kind(self) -> str:
        """The kind of curve, for reports."""
        return "isotonic" if self.sums else "logistic"

    def probabilities(self, evidence: FloatArray) -> FloatArray:
        """Compute the probability of each answer; (answers, evidence) gives (answers,)."""
        sums = self.weigh(evidence)
        return np.interp(sums, self.sums, self.values) if self.sums else expit(sums)

    def weigh(self, evidence: FloatArray) -> FloatArray:
        """Compute the weighted sum of the evidence; shape (answers,)."""
        return evidence @ np.array(self.weights) + self.intercept


def fit_logistic(evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    """Fit the most likely weights, with none negative for evidence that rises with the score.

    `counts` says how many answers each row represents; shapes (answers, evidence), (answers,) and (answers,).
    """
    center, spread = evidence.mean(axis=0), evidence.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    scaled = np.column_stack([(evidence - center) / spread, np.ones(len(evidence))])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        sums = scaled @ weights
        error = counts * (expit(sums) - is_gold)
        value = counts @ (np.logaddexp(0, sums) - is_gold * sums) + _PENALTY * weights @ weights / 2
        return float(value), scaled.T @ error + _PENALTY * weights

    bounds = [*((0, None) if rises else (None, None) for rises in RISING), (None, None)]
    *slopes, level = minimize(loss, np.zeros(len(bounds)), jac=True, bounds=bounds, method="L-BFGS-B").x
    weights = np.array(slopes) / spread
    return Curve(tuple(weights.tolist()), float(level - weights @ center))


def with_steps(curve: Curve, evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    """Keep the weights, but fit the probabilities to the data by isotonic regression on the weighted sum."""
    sums, place_of = np.unique(curve.weigh(evidence), return_inverse=True)
    totals = np.bincount(place_of, weights=counts)
    shares = np.bincount(place_of, weights=counts * is_gold) / totals
    found = isotonic_regression(shares, weights=totals)
    ends = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))  # first and last sum of each step
    least = 1 / (totals.sum() + 2)  # no probability is exactly 0 or 1
    return Curve(
        curve.weights,
        curve.intercept,
        tuple(sums[ends].tolist()),
        tuple(found.x[ends].clip(least, 1 - least).tolist()),
    )


def log_loss(probabilities: FloatArray, is_gold: BoolArray, counts: FloatArray) -> float:
    """Compute the total log loss over golds and other answers; lower is better."""
    likely = np.where(is_gold, probabilities, 1 - probabilities).clip(1e-12)
    return float(-counts @ np.log(likely))


# How far probabilities are from the observed share of gold answers.

BINS = 15


@dataclass(frozen=True)
class Bin:
    """A group of answers that are about equally probable."""

    answers: Count
    predicted: Share  # the mean probability
    found: Share  # of golds


@dataclass(frozen=True)
class Reliability:
    """How reliable probabilities are, on questions that no curve was fitted to or chosen on."""

    questions: Count
    answers: Count
    golds: Count
    error_before: Share  # the expected calibration error when softmax shares are taken as probabilities
    error_after: Share  # the expected calibration error of the probabilities
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
