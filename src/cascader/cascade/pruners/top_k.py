"""The same number of candidates for every query, given or read off the golds' ranks; and a cap on another pruner."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from cascader.cascade.pruners.examples import Examples, ScoredQueries
from cascader.cascade.pruners.pruner import Pruner, check_share, top_candidates
from cascader.errors import NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, Queries, Side
from cascader.graph.candidates import positions_within


@dataclass(frozen=True)
class TopK:
    """The `k` best candidates of every query.

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
        """The candidates of each query to keep, best first; masked ones never are."""
        return top_candidates(queries, scores, np.full(len(queries), self.k))

    def __str__(self) -> str:
        return f"the best {self.k}"

    def as_dict(self) -> dict[str, Any]:
        """The settings."""
        return {"pruner": self.kind, "k": int(self.k)}

    def tensors(self) -> dict[str, Array]:
        """Nothing is learnt."""
        return {}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "TopK":
        """From what `as_dict` and `tensors` gave."""
        return cls(saved["k"])


class StaticTopK:
    """As many candidates as would have kept a share `quantile` of the golds seen, for each side by itself.

    >>> queries = Queries(np.zeros(3, int), np.zeros(3, int), np.ones(3, bool), golds=np.array([0, 1, 2]))
    >>> scores = np.tile([9.0, 8.0, 7.0], (3, 1))  # the golds stand first, second and third
    >>> StaticTopK(quantile=0.6).fit([ScoredQueries(queries, scores)]).k("tail")
    2
    """

    kind: ClassVar[str] = "static"
    ranks_: dict[Side, FloatArray]  # of the golds seen, by the side asked for

    def __init__(self, quantile: float) -> None:
        check_share("quantile", quantile)
        self.quantile = quantile

    def fit(self, blocks: Iterable[ScoredQueries]) -> Self:
        """Learn from golds' ranks; of a side that was never asked for, from the other's."""
        return self.fit_examples(Examples.collect(blocks, "compact"))

    def fit_examples(self, examples: Examples) -> Self:
        """Learn from what has been collected before."""
        predicts_tail, ranks = examples.predicts_tail, examples.ranks
        of_side: dict[Side, FloatArray] = {"head": ranks[~predicts_tail], "tail": ranks[predicts_tail]}
        self.ranks_ = {side: np.sort(own if len(own) else ranks) for side, own in of_side.items()}
        return self

    def with_quantile(self, quantile: float) -> "StaticTopK":
        """A copy that keeps another share, without learning anew."""
        other = StaticTopK(quantile)
        if hasattr(self, "ranks_"):
            other.ranks_ = self.ranks_
        return other

    def k(self, side: Side) -> int:
        """How many candidates are kept where `side` is asked for."""
        if not hasattr(self, "ranks_"):
            raise NotFittedError("StaticTopK has not been fitted. Call fit(score_in_blocks(scorer, queries)).")
        # Not interpolated: the least rank that the share of golds does not exceed. A mean rank may end in a half.
        return int(np.ceil(np.quantile(self.ranks_[side], self.quantile, method="inverted_cdf")))

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        return top_candidates(queries, scores, np.where(queries.predicts_tail, self.k("tail"), self.k("head")))

    def __str__(self) -> str:
        return f"static, quantile {self.quantile:g}"

    def as_dict(self) -> dict[str, Any]:
        """The quantile, and the number of candidates it comes to."""
        saved: dict[str, Any] = {"pruner": self.kind, "quantile": self.quantile}
        return saved | {"k": {"head": self.k("head"), "tail": self.k("tail")}} if hasattr(self, "ranks_") else saved

    def tensors(self) -> dict[str, Array]:
        """The ranks that were seen."""
        return {f"{side}_ranks": ranks for side, ranks in getattr(self, "ranks_", {}).items()}

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "StaticTopK":
        """From what `as_dict` and `tensors` gave."""
        pruner = cls(saved["quantile"])
        if "k" in saved:
            pruner.ranks_ = {
                "head": np.asarray(tensors["head_ranks"]),
                "tail": np.asarray(tensors["tail_ranks"]),
            }
        return pruner


@dataclass(frozen=True)
class Capped:
    """What `pruner` keeps, but no more than the `k` best of it."""

    kind: ClassVar[str] = "capped"
    k: int
    pruner: Pruner

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"k is {self.k}, expected at least 1 candidate.")

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        kept = self.pruner.keep(queries, scores)
        return kept.where(positions_within(kept.counts) < self.k)

    def __str__(self) -> str:
        return f"{self.pruner}, at most {self.k}"

    def as_dict(self) -> dict[str, Any]:
        """The limit, and the other pruner's settings."""
        return {"pruner": self.kind, "k": self.k, "of": self.pruner.as_dict()}

    def tensors(self) -> dict[str, Array]:
        """What the other pruner has learnt."""
        return self.pruner.tensors()

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "Capped":
        """From what `as_dict` and `tensors` gave."""
        from cascader.cascade.pruners.registry import load_pruner

        return cls(saved["k"], load_pruner(saved["of"], tensors))
