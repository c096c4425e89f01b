"""Curves from evidence to probability that never fall as the score rises."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

from cascader.graph import BoolArray, FloatArray
from cascader.tuning.calibration.evidence import RISING

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
