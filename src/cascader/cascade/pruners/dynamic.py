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
