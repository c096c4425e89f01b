"""As many candidates as each query is predicted to need: just so, with a given mean, or with a guaranteed coverage."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np

from cascader.cascade.pruners.examples import Examples, FeatureName, ScoredQueries, asked, describe
from cascader.cascade.pruners.pruner import check_share, finite, top_candidates
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries, Side

if TYPE_CHECKING:
    from cascader.cascade.pruners.quantile_network import QuantileNetwork


class DynamicTopK:
    """Keeps as many candidates as each query is predicted to need to keep its gold with probability `quantile`.

    The prediction is a quantile regression of the gold's rank. With `features="scores"` it sees all sorted scores, as
    in the paper, and only works for graphs of the same size; `"compact"` sees a few numbers about the scores, the
    relation and the side. One network serves all quantiles, and a higher quantile never keeps fewer candidates.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> scorer = Frequency().fit(kg)
    >>> pruner = DynamicTopK(quantile=0.9, epochs=5).fit(score_in_blocks(scorer, queries))
    >>> counts = pruner.keep(queries, scorer.score_all(queries)).counts
    >>> fewer = pruner.with_quantile(0.5).keep(queries, scorer.score_all(queries)).counts
    >>> bool((fewer <= counts).all())
    True
    """

    kind: ClassVar[str] = "dynamic"
    network_: "QuantileNetwork"

    def __init__(
        self,
        quantile: float,
        features: FeatureName = "compact",
        *,
        hidden: int = 32,
        epochs: int = 100,
        seed: int = 0,
    ) -> None:
        check_share("quantile", quantile)
        if features not in get_args(FeatureName):
            raise SettingsError(f"features is {features!r}, expected one of: {', '.join(get_args(FeatureName))}.")
        for name, value in {"hidden": hidden, "epochs": epochs}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingsError(f"{name} is {value!r}, expected a whole number, at least 1.")
        self.quantile = quantile
        self.features: FeatureName = features
        self.hidden, self.epochs, self.seed = hidden, epochs, seed

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn from the golds' ranks in one pass over the blocks, which need not fit in memory together."""
        return self.fit_examples(Examples.collect(blocks, self.features))

    def fit_examples(self, examples: Examples) -> Self:
        """Fit on collected examples."""
        from cascader.cascade.pruners.quantile_network import fit_network

        self.network_ = fit_network(examples, self.features, self.hidden, self.epochs, self.seed)
        return self

    def with_quantile(self, quantile: float) -> "DynamicTopK":
        """Copy it for another quantile without training again."""
        settings = {"hidden": self.hidden, "epochs": self.epochs, "seed": self.seed}
        other = DynamicTopK(quantile, self.features, **settings)
        if hasattr(self, "network_"):
            other.network_ = self.network_
        return other

    def predict(self, features: FloatArray, asked_for: IntArray) -> FloatArray:
        """Predict the quantile of each gold's rank, at least 1 and not rounded; shape (queries,)."""
        return self.predict_all(features, asked_for, np.array([self.quantile]))[:, 0]

    def predict_all(self, features: FloatArray, asked_for: IntArray, quantiles: FloatArray) -> FloatArray:
        """Predict several quantiles of each gold's rank; shape (queries, quantiles)."""
        if not hasattr(self, "network_"):
            raise NotFittedError("DynamicTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        expected = len(self.network_.mean)
        if features.shape[1] != expected:
            raise DataError(
                f"there are scores for {features.shape[1]:,} entities, but this pruner was fitted on {expected:,}. "
                'Fit it again, or use features="compact".'
            )
        return self.network_.predict(features, asked_for, quantiles)

    def expected_ranks(self, queries: Queries, scores: FloatArray) -> FloatArray:
        """Predict the quantile of each gold's rank from `scores`, (queries, entities); shape (queries,)."""
        return self.predict(describe(queries, scores, self.features), asked(queries))

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        # The last bits of a prediction depend on the block size, and must not add a candidate.
        counts = np.ceil(self.expected_ranks(queries, scores) * (1 - 1e-9))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"dynamic, quantile {self.quantile:g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON object."""
        return {
            "pruner": self.kind,
            "quantile": self.quantile,
            "features": self.features,
            "hidden": self.hidden,
            "epochs": self.epochs,
            "seed": self.seed,
        }

    def tensors(self) -> dict[str, Array]:
        """Return the network's weights by name; empty before fitting."""
        if not hasattr(self, "network_"):
            return {}
        return {name: values.numpy() for name, values in self.network_.state_dict().items()}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "DynamicTopK":
        """Rebuild it from `as_dict()` and `tensors()`."""
        pruner = cls(**{name: value for name, value in saved.items() if name != "pruner"})
        if tensors:
            from cascader.cascade.pruners.quantile_network import network_of

            pruner.network_ = network_of(tensors)
        return pruner


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
            pruner.price_ = finite("price", saved["price"])
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner


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
            factors = (saved["factors"][side] for side in ("head", "tail"))
            head, tail = (math.inf if each is None else finite("factor", each) for each in factors)
            pruner.factors_ = {"head": head, "tail": tail}
            pruner.dynamic_ = DynamicTopK.load(saved["dynamic"], tensors)
        return pruner
