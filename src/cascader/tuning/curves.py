"""Curves from evidence to probability that never fall as the score rises."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Len
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logsumexp

from cascader.errors import DataError
from cascader.graph import BoolArray, FloatArray, IntArray
from cascader.records import Share

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
