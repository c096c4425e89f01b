"""Curves from evidence to probability that never fall as the score rises."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logsumexp

from cascader.graph import BoolArray, FloatArray

#: The columns of the evidence. Those of an entity rise with its score; the last one is of the question as a whole.
EVIDENCE = ("share", "rank", "answers")
RISING = (True, True, False)
#: Deviations of a question's scores are stretched so before they compete: without, its best answers look alike.
_SHARPNESS = 2.0


def evidence(scores: FloatArray, is_known: BoolArray) -> FloatArray:
    """The evidence for every entity as the answer of one question; (entities, 3) from two times (entities,).

    The logarithm of its share among all that is not known, after the scores are brought to one deviation; minus the
    logarithm of its rank there; and how many answers are known already. What is known gets what it would have.

    >>> evidence(np.array([3.0, 1.0, 2.0]), np.array([False, False, True])).round(2).tolist()
    [[-0.02, -0.0, 0.69], [-4.02, -0.69, 0.69], [-2.02, -0.41, 0.69]]
    """
    answers = np.full(len(scores), np.log1p(is_known.sum()))
    if is_known.all():
        return np.stack([np.zeros(len(scores)), np.zeros(len(scores)), answers], axis=1)
    scores = scores.astype(np.float64)
    return np.stack([_log_share(scores, ~is_known), -np.log(_rank(scores, ~is_known)), answers], axis=1)


def _log_share(scores: FloatArray, is_new: BoolArray) -> FloatArray:
    centre, spread = scores[is_new].mean(), scores[is_new].std()
    is_constant = spread <= 1e-6 * (1 + abs(centre))  # what float32 sees as one and the same score
    stretched = _SHARPNESS * (scores - centre) / (1 if is_constant else spread)
    # No share is more than all; only what is known and would be ahead of everyone comes near that.
    return np.minimum(stretched - logsumexp(stretched[is_new]), 0.0)


def _rank(scores: FloatArray, is_new: BoolArray) -> FloatArray:
    """The mean rank among what is new: equal scores must have equal probabilities."""
    ascending = np.sort(scores[is_new])
    not_above = np.searchsorted(ascending, scores, side="right")
    equal = not_above - np.searchsorted(ascending, scores, side="left")
    return len(ascending) - not_above + (equal + 1) / 2


#: Keeps weights finite where evidence separates all golds from the rest.
_PENALTY = 0.01


@dataclass(frozen=True)
class Curve:
    """Weighs the evidence; the sum becomes a probability by the logistic function, or by steps where there are some.

    >>> curve = Curve(weights=(1.0, 0.0, 0.0), intercept=0.0)
    >>> curve.probabilities(np.array([[0.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])).round(3).tolist()
    [0.5, 0.119]
    """

    weights: tuple[float, ...]  # (evidence,)
    intercept: float
    sums: tuple[float, ...] = ()  # where steps begin and end, ascending
    values: tuple[float, ...] = ()  # the probability there, never falling

    @property
    def kind(self) -> str:
        """What it is called."""
        return "isotonic" if self.sums else "logistic"

    def probabilities(self, evidence: FloatArray) -> FloatArray:
        """The probability of each answer; shape (answers,) from (answers, evidence)."""
        sums = self.weigh(evidence)
        return np.interp(sums, self.sums, self.values) if self.sums else expit(sums)

    def weigh(self, evidence: FloatArray) -> FloatArray:
        """The evidence in one number; shape (answers,)."""
        return evidence @ np.array(self.weights) + self.intercept

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Curve":
        """What `as_dict` gave."""
        return cls(tuple(saved["weights"]), saved["intercept"], tuple(saved["sums"]), tuple(saved["values"]))


def fit_logistic(evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    """The most likely weights; what rises with the score cannot have a negative one.

    `counts` says how many answers each stands for; shapes (answers, evidence), (answers,) and (answers,).
    """
    centre, spread = evidence.mean(axis=0), evidence.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    scaled = np.column_stack([(evidence - centre) / spread, np.ones(len(evidence))])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        sums = scaled @ weights
        error = counts * (expit(sums) - is_gold)
        value = counts @ (np.logaddexp(0, sums) - is_gold * sums) + _PENALTY * weights @ weights / 2
        return float(value), scaled.T @ error + _PENALTY * weights

    bounds = [*((0, None) if rises else (None, None) for rises in RISING), (None, None)]
    *slopes, level = minimize(loss, np.zeros(len(bounds)), jac=True, bounds=bounds, method="L-BFGS-B").x
    weights = np.array(slopes) / spread
    return Curve(tuple(weights.tolist()), float(level - weights @ centre))


def with_steps(curve: Curve, evidence: FloatArray, is_gold: BoolArray, counts: FloatArray) -> Curve:
    """The same weights, but the share of golds is read off the data: isotonic regression on the sum."""
    sums, place_of = np.unique(curve.weigh(evidence), return_inverse=True)
    totals = np.bincount(place_of, weights=counts)
    shares = np.bincount(place_of, weights=counts * is_gold) / totals
    found = isotonic_regression(shares, weights=totals)
    ends = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))  # first and last sum of each step
    least = 1 / (totals.sum() + 2)  # what was never seen may still be
    return Curve(
        curve.weights,
        curve.intercept,
        tuple(sums[ends].tolist()),
        tuple(found.x[ends].clip(least, 1 - least).tolist()),
    )


def log_loss(probabilities: FloatArray, is_gold: BoolArray, counts: FloatArray) -> float:
    """How surprised one is by the golds and the others, in all; lower is better."""
    likely = np.where(is_gold, probabilities, 1 - probabilities).clip(1e-12)
    return float(-counts @ np.log(likely))
