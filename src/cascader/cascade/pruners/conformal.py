"""As many candidates as each query is predicted to need, corrected so that the share of survivors is guaranteed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries
from cascader.cascade.pruners.pruner import check_share, top_candidates
from cascader.errors import NotFittedError
from cascader.graph import Array, Candidates, FloatArray, Queries, Side

#: Of the triples that it is fitted on; the others teach.
CALIBRATION_SHARE = 0.5
#: What rounding may take away from a product.
_ROUNDING = 1e-9


class ConformalTopK:
    """Keeps the gold answer with probability `coverage` at least, on each side, however bad the predictions are.

    A `DynamicTopK` learns from a random half of the triples; on the other half one sees by which factor its
    predictions fall short (split conformal prediction). The guarantee is for triples that are drawn like those it was
    fitted on, and whose known facts are masked alike; it is an average over all of them, not a promise for each
    relation. A gold is counted as kept only if it would be however its ties were broken.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> floor = Frequency().fit(kg)
    >>> pruner = ConformalTopK(coverage=0.8).fit(score_in_blocks(floor, queries))
    >>> pruner.uncovered_sides  # six triples to calibrate on are enough for 0.8; with too few, all candidates are kept
    ()
    """

    kind: ClassVar[str] = "conformal"
    dynamic_: DynamicTopK
    factors_: dict[Side, float]  # what predictions are multiplied by; infinite where there were too few queries

    def __init__(self, coverage: float, *, seed: int = 0) -> None:
        check_share("coverage", coverage)
        self.coverage = coverage
        self.seed = seed

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn from one half of the triples and calibrate on the other."""
        return self.fit_examples(Examples.collect(blocks, "compact"))

    def fit_examples(self, examples: Examples) -> Self:
        """Learn from what has been collected before."""
        learning, self._calibration = examples.split(CALIBRATION_SHARE, self.seed)
        self.dynamic_ = DynamicTopK(self.coverage, seed=self.seed).fit_examples(learning)
        return self._calibrate()

    def with_coverage(self, coverage: float) -> "ConformalTopK":
        """A copy for another coverage, with what this one has learned; only before it was saved."""
        other = ConformalTopK(coverage, seed=self.seed)
        other.dynamic_, other._calibration = self.dynamic_.with_quantile(coverage), self._calibration
        return other._calibrate()

    def _calibrate(self) -> Self:
        # By side: the two queries of a triple depend on each other, and only one of them is on each side.
        of_tails = self._calibration.predicts_tail
        self.factors_ = {
            "head": self._factor(self._calibration[~of_tails]),
            "tail": self._factor(self._calibration[of_tails]),
        }
        return self

    def _factor(self, calibration: Examples) -> float:
        """The factor that suffices for as many of n golds as guarantee the coverage of one more."""
        place = math.ceil((len(calibration) + 1) * self.coverage)
        if place > len(calibration):
            return math.inf
        predicted = self.dynamic_.predict(calibration.features, calibration.asked)
        # The first always survives, whatever the factor: one candidate at least is kept.
        needed = np.where(calibration.worst_ranks > 1, calibration.worst_ranks / predicted, 0.0)
        return float(np.sort(needed)[place - 1])

    @property
    def uncovered_sides(self) -> tuple[Side, ...]:
        """The sides of which too little was seen for a guarantee, so that all candidates are kept."""
        return tuple(side for side, factor in self._fitted().items() if math.isinf(factor))

    def _fitted(self) -> dict[Side, float]:
        if not hasattr(self, "factors_"):
            raise NotFittedError("ConformalTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        return self.factors_

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        factors = self._fitted()
        of_query = np.where(queries.predicts_tail, factors["tail"], factors["head"])
        # Rounded down: a rank is a whole number, and is reached if the product reaches it.
        counts = np.floor(of_query * self.dynamic_.expected_ranks(queries, scores) * (1 + _ROUNDING))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"conformal, coverage {self.coverage:g}"

    def as_dict(self) -> dict[str, Any]:
        """The settings and factors; JSON has no infinity, which is written as null."""
        saved: dict[str, Any] = {"pruner": self.kind, "coverage": self.coverage, "seed": self.seed}
        if hasattr(self, "factors_"):
            saved["factors"] = {side: None if math.isinf(f) else f for side, f in self.factors_.items()}
            saved["dynamic"] = self.dynamic_.as_dict()
        return saved

    def tensors(self) -> dict[str, Array]:
        """The network's weights by name; none before it was fitted."""
        return self.dynamic_.tensors() if hasattr(self, "dynamic_") else {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "ConformalTopK":
        """From what `as_dict` and `tensors` gave."""
        pruner = cls(saved["coverage"], seed=saved["seed"])
        if "factors" in saved:
            head, tail = (math.inf if f is None else f for f in (saved["factors"][s] for s in ("head", "tail")))
            pruner.factors_ = {"head": head, "tail": tail}
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner
