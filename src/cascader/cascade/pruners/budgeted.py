"""A fixed average number of candidates per query, spent where one more is most likely to be the gold answer."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries, asked, describe
from cascader.cascade.pruners.pruner import top_candidates
from cascader.errors import NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries

#: The chances of keeping the gold at which each query's curve is sampled.
_CHANCES = np.linspace(0.005, 0.995, 100)
_HALVINGS = 60


class BudgetedTopK:
    """Keeps `mean` candidates per query on average over the queries it was fitted on.

    Giving every query the same chance, as `DynamicTopK` does, spends the most on queries that are lost anyway. Here all
    queries pay the same price instead: a query gets another candidate as long as that raises its chance of keeping the
    gold by more than `price_`, and the price is set so that the mean is met.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> scorer = Frequency().fit(kg)
    >>> pruner = BudgetedTopK(mean=3).fit(score_in_blocks(scorer, queries))
    >>> bool(pruner.keep(queries, scorer.score_all(queries)).counts.mean() <= 3)
    True
    """

    kind: ClassVar[str] = "budgeted"
    dynamic_: DynamicTopK
    price_: float  # the gain in chance that a candidate must bring

    def __init__(self, mean: float, *, seed: int = 0) -> None:
        if isinstance(mean, bool) or not isinstance(mean, int | float) or not mean >= 1 or math.isinf(mean):
            raise SettingsError(f"mean is {mean!r}, expected a number of candidates, at least 1.")
        self.mean = mean
        self.seed = seed

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn how the chance of each query grows with its candidates, and the price that meets the mean."""
        examples = Examples.collect(blocks, "compact")
        return self.fit_examples(examples, DynamicTopK(0.5, seed=self.seed).fit_examples(examples))

    def fit_examples(self, examples: Examples, dynamic: DynamicTopK) -> Self:
        """Fit on collected examples, with a network that was already fitted on them."""
        self.dynamic_ = dynamic
        self._curves = self._curves_of(examples.features, examples.asked)
        return self._set_price()

    def _set_price(self) -> Self:
        lowest, highest = 1e-12, 1.0  # the lowest keeps all that may help, the highest only the best
        for _ in range(_HALVINGS):
            self.price_ = math.sqrt(lowest * highest)
            if self._counts(self._curves).mean() > self.mean:
                lowest = self.price_
            else:
                highest = self.price_
        self.price_ = highest
        return self

    def with_mean(self, mean: float) -> "BudgetedTopK":
        """Copy it for another mean without fitting again; not possible once it was saved and loaded."""
        other = BudgetedTopK(mean, seed=self.seed)
        other.dynamic_, other._curves = self.dynamic_, self._curves
        return other._set_price()

    def _curves_of(self, features: FloatArray, asked_for: IntArray) -> FloatArray:
        """Predict how many candidates give each query each of the chances; shape (queries, chances)."""
        return np.ceil(self.dynamic_.predict_all(features, asked_for, _CHANCES) * (1 - 1e-9))

    def _counts(self, curves: FloatArray) -> FloatArray:
        """Choose the number of candidates whose chance exceeds their price the most; shape (queries,)."""
        best = (_CHANCES - self.price_ * curves).argmax(axis=1)
        return curves[np.arange(len(curves)), best]

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        if not hasattr(self, "price_"):
            raise NotFittedError("BudgetedTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        counts = self._counts(self._curves_of(describe(queries, scores, "compact"), asked(queries)))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"budgeted, {self.mean:g} on average"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings and the price as a JSON object."""
        saved: dict[str, Any] = {"pruner": self.kind, "mean": self.mean, "seed": self.seed}
        if hasattr(self, "price_"):
            saved |= {"price": self.price_, "dynamic": self.dynamic_.as_dict()}
        return saved

    def tensors(self) -> dict[str, Array]:
        """Return the network's weights by name; empty before fitting."""
        return self.dynamic_.tensors() if hasattr(self, "dynamic_") else {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "BudgetedTopK":
        """Rebuild it from `as_dict()` and `tensors()`."""
        pruner = cls(saved["mean"], seed=saved["seed"])
        if "price" in saved:
            pruner.price_ = saved["price"]
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner
