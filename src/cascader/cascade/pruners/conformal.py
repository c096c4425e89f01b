"""As many candidates as each query is predicted to need, corrected so that the coverage is guaranteed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries
from cascader.cascade.pruners.pruner import check_share, top_candidates
from cascader.errors import NotFittedError
from cascader.graph import Array, Candidates, FloatArray, Queries, Side

#: The share of the triples that is used to calibrate; the others train the network.
CALIBRATION_SHARE = 0.5
#: Tolerance for rounding errors in a product.
_ROUNDING = 1e-9


class ConformalTopK:
    """Keeps the gold answer with a probability of at least `coverage` on each side, however bad the predictions are.

    A `DynamicTopK` learns from a random half of the triples; the other half shows by which factor its predictions fall
    short (split conformal prediction). The guarantee holds for triples that are drawn like those it was fitted on and
    masked in the same way; it is an average over all of them, not a promise for each relation. A gold counts as kept
    only if it is kept however ties are broken.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> scorer = Frequency().fit(kg)
    >>> pruner = ConformalTopK(coverage=0.8).fit(score_in_blocks(scorer, queries))
    >>> pruner.uncovered_sides  # six triples are enough to calibrate 0.8; with fewer, all candidates are kept
    ()
    """

    kind: ClassVar[str] = "conformal"
    dynamic_: DynamicTopK
    factors_: dict[Side, float]  # multiply the predictions; infinite if there were too few queries

    def __init__(self, coverage: float, *, seed: int = 0) -> None:
        check_share("coverage", coverage)
        self.coverage = coverage
        self.seed = seed

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Train on one half of the triples and calibrate on the other."""
        return self.fit_examples(Examples.collect(blocks, "compact"))

    def fit_examples(self, examples: Examples) -> Self:
        """Fit on collected examples."""
        learning, self._calibration = examples.split(CALIBRATION_SHARE, self.seed)
        self.dynamic_ = DynamicTopK(self.coverage, seed=self.seed).fit_examples(learning)
        return self._calibrate()

    def with_coverage(self, coverage: float) -> "ConformalTopK":
        """Copy it for another coverage without training again; not possible once it was saved and loaded."""
        other = ConformalTopK(coverage, seed=self.seed)
        other.dynamic_, other._calibration = self.dynamic_.with_quantile(coverage), self._calibration
        return other._calibrate()

    def _calibrate(self) -> Self:
        # By side: the two queries of a triple depend on each other, so they must not share a sample.
        predicts_tail = self._calibration.predicts_tail
        self.factors_ = {
            "head": self._factor(self._calibration[~predicts_tail]),
            "tail": self._factor(self._calibration[predicts_tail]),
        }
        return self

    def _factor(self, calibration: Examples) -> float:
        """Find the factor that keeps enough of the n golds to guarantee the coverage of one more."""
        place = math.ceil((len(calibration) + 1) * self.coverage)
        if place > len(calibration):
            return math.inf
        predicted = self.dynamic_.predict(calibration.features, calibration.asked)
        # At least one candidate is kept, so a gold in first place needs no factor.
        needed = np.where(calibration.worst_ranks > 1, calibration.worst_ranks / predicted, 0.0)
        return float(np.sort(needed)[place - 1])

    @property
    def uncovered_sides(self) -> tuple[Side, ...]:
        """The sides with too few queries for a guarantee, on which all candidates are kept."""
        return tuple(side for side, factor in self._fitted().items() if math.isinf(factor))

    def _fitted(self) -> dict[Side, float]:
        if not hasattr(self, "factors_"):
            raise NotFittedError("ConformalTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        return self.factors_

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        factors = self._fitted()
        factor = np.where(queries.predicts_tail, factors["tail"], factors["head"])
        # Rounded down: a rank is a whole number, and is covered once the product reaches it.
        counts = np.floor(factor * self.dynamic_.expected_ranks(queries, scores) * (1 + _ROUNDING))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"conformal, coverage {self.coverage:g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings and factors as a JSON object, with null for an infinite factor."""
        saved: dict[str, Any] = {"pruner": self.kind, "coverage": self.coverage, "seed": self.seed}
        if hasattr(self, "factors_"):
            saved["factors"] = {side: None if math.isinf(f) else f for side, f in self.factors_.items()}
            saved["dynamic"] = self.dynamic_.as_dict()
        return saved

    def tensors(self) -> dict[str, Array]:
        """Return the network's weights by name; empty before fitting."""
        return self.dynamic_.tensors() if hasattr(self, "dynamic_") else {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "ConformalTopK":
        """Rebuild it from `as_dict()` and `tensors()`."""
        pruner = cls(saved["coverage"], seed=saved["seed"])
        if "factors" in saved:
            head, tail = (math.inf if f is None else f for f in (saved["factors"][s] for s in ("head", "tail")))
            pruner.factors_ = {"head": head, "tail": tail}
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner
