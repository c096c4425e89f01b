"""As many candidates as each query is predicted to need."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np

from cascader.cascade.pruners.examples import Examples, FeatureName, ScoredQueries, asked, describe
from cascader.cascade.pruners.pruner import check_share, top_candidates
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries

if TYPE_CHECKING:
    from cascader.cascade.pruners.quantile_network import QuantileNetwork


class DynamicTopK:
    """As many candidates as put the gold answer among them with probability `quantile`, predicted for each query.

    The prediction is a quantile regression of the gold's rank. With `features="scores"` it sees what the paper's does,
    all scores in order, and fits graphs of that size only; `"compact"` sees a few numbers about the scores, the
    relation and the side. Training knows no quantile: one network serves them all, and a higher one never keeps fewer.

    >>> from cascader import Frequency, KnowledgeGraph, Queries
    >>> from cascader.cascade.pruners import score_in_blocks
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:24], valid=facts[24:])
    >>> queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    >>> floor = Frequency().fit(kg)
    >>> pruner = DynamicTopK(quantile=0.9, epochs=5).fit(score_in_blocks(floor, queries))
    >>> counts = pruner.keep(queries, floor.score_all(queries)).counts
    >>> fewer = pruner.with_quantile(0.5).keep(queries, floor.score_all(queries)).counts
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
        """Learn from the golds' ranks; the blocks are gone through once, and not in need of all fitting in memory."""
        return self.fit_examples(Examples.collect(blocks, self.features))

    def fit_examples(self, examples: Examples) -> Self:
        """Learn from what has been collected before."""
        from cascader.cascade.pruners.quantile_network import fit_network

        self.network_ = fit_network(examples, self.features, self.hidden, self.epochs, self.seed)
        return self

    def with_quantile(self, quantile: float) -> "DynamicTopK":
        """A copy for another quantile, with what this one has learnt."""
        settings = {"hidden": self.hidden, "epochs": self.epochs, "seed": self.seed}
        other = DynamicTopK(quantile, self.features, **settings)
        if hasattr(self, "network_"):
            other.network_ = self.network_
        return other

    def predict(self, features: FloatArray, asked_for: IntArray) -> FloatArray:
        """The quantile of each gold's rank, at least 1 and not rounded; shape (queries,)."""
        return self.predict_all(features, asked_for, np.array([self.quantile]))[:, 0]

    def predict_all(self, features: FloatArray, asked_for: IntArray, quantiles: FloatArray) -> FloatArray:
        """Many quantiles of each gold's rank; shape (queries, quantiles)."""
        if not hasattr(self, "network_"):
            raise NotFittedError("DynamicTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        expected = len(self.network_.mean)
        if features.shape[1] != expected:
            raise DataError(
                f"there are scores for {features.shape[1]:,} entities, but this pruner was fitted on {expected:,}. "
                'Fit it again, or take features="compact".'
            )
        return self.network_.predict(features, asked_for, quantiles)

    def expected_ranks(self, queries: Queries, scores: FloatArray) -> FloatArray:
        """The quantile of each gold's rank among `scores`, (queries, entities); shape (queries,)."""
        return self.predict(describe(queries, scores, self.features), asked(queries))

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        # The last bits of a prediction depend on the size of the block, and must not make one candidate more.
        counts = np.ceil(self.expected_ranks(queries, scores) * (1 - 1e-9))
        return top_candidates(queries, scores, counts.clip(1, scores.shape[1]).astype(np.int64))

    def __str__(self) -> str:
        return f"dynamic, quantile {self.quantile:g}"

    def as_dict(self) -> dict[str, Any]:
        """The settings."""
        return {
            "pruner": self.kind,
            "quantile": self.quantile,
            "features": self.features,
            "hidden": self.hidden,
            "epochs": self.epochs,
            "seed": self.seed,
        }

    def tensors(self) -> dict[str, Array]:
        """The network's weights by name; none before it was fitted."""
        if not hasattr(self, "network_"):
            return {}
        return {name: values.numpy() for name, values in self.network_.state_dict().items()}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "DynamicTopK":
        """From what `as_dict` and `tensors` gave."""
        pruner = cls(**{name: value for name, value in saved.items() if name != "pruner"})
        if tensors:
            from cascader.cascade.pruners.quantile_network import network_of

            pruner.network_ = network_of(tensors)
        return pruner
