"""The same number of candidates for every query, given or learned from the golds' ranks; and a cap on any pruner."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.examples import Examples, ScoredQueries
from cascader.cascade.pruners.pruner import Pruner, check_share, top_candidates
from cascader.errors import NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, Queries, Side
from cascader.graph.arrays import positions_within


@dataclass(frozen=True)
class TopK:
    """Keeps the `k` best candidates of every query.

    >>> queries = Queries(np.zeros(1, int), np.zeros(1, int), np.ones(1, bool))
    >>> TopK(2).keep(queries, np.array([[0.1, 0.9, 0.5]]))[0].tolist()  # of three entities
    [1, 2]
    """

    kind: ClassVar[str] = "top_k"
    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or self.k < 1:
            raise SettingsError(f"k is {self.k!r}, expected a whole number, at least 1 candidate.")

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        return top_candidates(queries, scores, np.full(len(queries), self.k))

    def __str__(self) -> str:
        return f"the best {self.k}"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON object."""
        return {"pruner": self.kind, "k": int(self.k)}

    def tensors(self) -> dict[str, Array]:
        """Return nothing: it learns nothing."""
        return {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "TopK":
        """Rebuild it from `as_dict()` and `tensors()`."""
        return cls(saved["k"])


class StaticTopK:
    """Keeps as many candidates on each side as would have kept a share `quantile` of the golds it was fitted on.

    >>> queries = Queries(np.zeros(3, int), np.zeros(3, int), np.ones(3, bool), golds=np.array([0, 1, 2]))
    >>> scores = np.tile([9.0, 8.0, 7.0], (3, 1))  # the golds rank first, second and third
    >>> StaticTopK(quantile=0.6).fit([ScoredQueries(queries, scores)]).k("tail")
    2
    """

    kind: ClassVar[str] = "static"
    ranks_: dict[Side, FloatArray]  # of the golds it was fitted on, by the side asked for

    def __init__(self, quantile: float) -> None:
        check_share("quantile", quantile)
        self.quantile = quantile

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn from the golds' ranks; a side that was never asked for uses those of the other."""
        return self.fit_examples(Examples.collect(blocks, "compact"))

    def fit_examples(self, examples: Examples) -> Self:
        """Fit on collected examples."""
        predicts_tail, ranks = examples.predicts_tail, examples.ranks
        by_side: dict[Side, FloatArray] = {"head": ranks[~predicts_tail], "tail": ranks[predicts_tail]}
        self.ranks_ = {side: np.sort(own if len(own) else ranks) for side, own in by_side.items()}
        return self

    def with_quantile(self, quantile: float) -> "StaticTopK":
        """Copy it for another quantile without fitting again."""
        other = StaticTopK(quantile)
        if hasattr(self, "ranks_"):
            other.ranks_ = self.ranks_
        return other

    def k(self, side: Side) -> int:
        """Return how many candidates are kept when `side` is asked for."""
        if not hasattr(self, "ranks_"):
            raise NotFittedError("StaticTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        # Not interpolated: the lowest rank that covers the share of golds. A mean rank may end in a half.
        return int(np.ceil(np.quantile(self.ranks_[side], self.quantile, method="inverted_cdf")))

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        return top_candidates(queries, scores, np.where(queries.predicts_tail, self.k("tail"), self.k("head")))

    def __str__(self) -> str:
        return f"static, quantile {self.quantile:g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the quantile and the resulting number of candidates as a JSON object."""
        saved: dict[str, Any] = {"pruner": self.kind, "quantile": self.quantile}
        return saved | {"k": {"head": self.k("head"), "tail": self.k("tail")}} if hasattr(self, "ranks_") else saved

    def tensors(self) -> dict[str, Array]:
        """Return the ranks it was fitted on."""
        return {f"{side}_ranks": ranks for side, ranks in getattr(self, "ranks_", {}).items()}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "StaticTopK":
        """Rebuild it from `as_dict()` and `tensors()`."""
        pruner = cls(saved["quantile"])
        if "k" in saved:
            pruner.ranks_ = {
                "head": np.asarray(tensors["head_ranks"]),
                "tail": np.asarray(tensors["tail_ranks"]),
            }
        return pruner


@dataclass(frozen=True)
class Capped:
    """Keeps what `pruner` keeps, but never more than the `k` best."""

    kind: ClassVar[str] = "capped"
    k: int
    pruner: Pruner

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"k is {self.k}, expected at least 1 candidate.")

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first and never a masked one."""
        kept = self.pruner.keep(queries, scores)
        return kept.where(positions_within(kept.counts) < self.k)

    def __str__(self) -> str:
        return f"{self.pruner}, at most {self.k}"

    def as_dict(self) -> dict[str, Any]:
        """Return the limit and the other pruner's settings as a JSON object."""
        return {"pruner": self.kind, "k": self.k, "of": self.pruner.as_dict()}

    def tensors(self) -> dict[str, Array]:
        """Return what the other pruner has learned."""
        return self.pruner.tensors()

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "Capped":
        """Rebuild it from `as_dict()` and `tensors()`."""
        from cascader.cascade.pruners.registry import load_pruner

        return cls(saved["k"], load_pruner(saved["of"], tensors))
