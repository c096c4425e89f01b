"""So many candidates a query on average, spent where one more is most likely to be the gold answer."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.dynamic import DynamicTopK
from cascader.cascade.pruners.examples import Examples, ScoredQueries, asked, describe
from cascader.cascade.pruners.pruner import top_candidates
from cascader.errors import NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries

#: Where the curve from candidates to the chance that the gold is among them is looked at.
_CHANCES = np.linspace(0.005, 0.995, 100)
_HALVINGS = 60


class BudgetedTopK:
    """`mean` candidates a query on average over the queries seen.

    An equal chance for every query, as `DynamicTopK` gives it, spends most on the queries that are lost anyway. Here
    all queries have an equal price instead: a query gets candidates as long as one more raises its chance by more
    than `price_`, and the price is such that the mean comes out.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> floor = Frequency().fit(kg)
    >>> pruner = BudgetedTopK(mean=3).fit(score_in_blocks(floor, queries))
    >>> bool(pruner.keep(queries, floor.score_all(queries)).counts.mean() <= 3)
    True
    """

    kind: ClassVar[str] = "budgeted"
    dynamic_: DynamicTopK
    price_: float  # the chance that a candidate must be worth

    def __init__(self, mean: float, *, seed: int = 0) -> None:
        if isinstance(mean, bool) or not isinstance(mean, int | float) or not mean >= 1 or math.isinf(mean):
            raise SettingsError(f"mean is {mean!r}, expected a number of candidates, at least 1.")
        self.mean = mean
        self.seed = seed

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn the curves of queries, and the price at which the mean comes out."""
        examples = Examples.collect(blocks, "compact")
        return self.fit_examples(examples, DynamicTopK(0.5, seed=self.seed).fit_examples(examples))

    def fit_examples(self, examples: Examples, dynamic: DynamicTopK) -> Self:
        """Learn from what has been collected before, with a network that has learned from it already."""
        self.dynamic_ = dynamic
        self._curves = self._curves_of(examples.features, examples.asked)
        return self._set_price()

    def _set_price(self) -> Self:
        lowest, highest = 1e-12, 1.0  # at the first all is kept that may help, at the second the best alone
        for _ in range(_HALVINGS):
            self.price_ = math.sqrt(lowest * highest)
            if self._counts(self._curves).mean() > self.mean:
                lowest = self.price_
            else:
                highest = self.price_
        self.price_ = highest
        return self

    def with_mean(self, mean: float) -> "BudgetedTopK":
        """A copy for another mean, with what this one has learnt; only before it was saved."""
        other = BudgetedTopK(mean, seed=self.seed)
        other.dynamic_, other._curves = self.dynamic_, self._curves
        return other._set_price()

    def _curves_of(self, features: FloatArray, asked_for: IntArray) -> FloatArray:
        """How many candidates give a query each of the chances; shape (queries, chances)."""
        return np.ceil(self.dynamic_.predict_all(features, asked_for, _CHANCES) * (1 - 1e-9))

    def _counts(self, curves: FloatArray) -> FloatArray:
        """Where the chance is worth most more than it costs; shape (queries,)."""
        best = (_CHANCES - self.price_ * curves).argmax(axis=1)
        return curves[np.arange(len(curves)), best]

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        if not hasattr(self, "price_"):
            raise NotFittedError("BudgetedTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        counts = self._counts(self._curves_of(describe(queries, scores, "compact"), asked(queries)))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"budgeted, {self.mean:g} on average"

    def as_dict(self) -> dict[str, Any]:
        """The settings and the price."""
        saved: dict[str, Any] = {"pruner": self.kind, "mean": self.mean, "seed": self.seed}
        if hasattr(self, "price_"):
            saved |= {"price": self.price_, "dynamic": self.dynamic_.as_dict()}
        return saved

    def tensors(self) -> dict[str, Array]:
        """The network's weights by name; none before it was fitted."""
        return self.dynamic_.tensors() if hasattr(self, "dynamic_") else {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "BudgetedTopK":
        """From what `as_dict` and `tensors` gave."""
        pruner = cls(saved["mean"], seed=saved["seed"])
        if "price" in saved:
            pruner.price_ = saved["price"]
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner
