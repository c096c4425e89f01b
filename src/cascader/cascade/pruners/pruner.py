"""The interface of all pruners, the selection that they share, and those that keep the same number for every query."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from cascader.cascade.pruners.examples import Examples, ScoredQueries
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries, Side
from cascader.graph.arrays import offsets_of, positions_within


class Pruner(Protocol):
    """Chooses candidates from a tier's scores, in which known answers are already masked with -inf.

    `kind` names it in files and reports, and `str(pruner)` describes in a few words how many it keeps.
    """

    kind: ClassVar[str]

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """Keep the best candidates of each query, best first; `scores` is (queries, entities)."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Return its kind, its settings and the few numbers it has learned, ready for JSON."""
        ...

    def tensors(self) -> dict[str, Array]:
        """Return the arrays it has learned, by name."""
        ...


def finite(name: str, value: object) -> float:
    """Return a number that a file has, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise SettingsError(f"{name} is {value!r}, expected a number, 0 or more.")
    return float(value)


def check_share(name: str, value: object) -> None:
    """Check a quantile or coverage: a share of the queries that is neither none nor all of them."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingsError(f"{name} is {value!r}, expected a number above 0 and below 1, such as 0.9.")


#: Few enough for copies to stay in the processor's cache.
_ROWS_AT_ONCE = 64


def top_candidates(queries: Queries, scores: FloatArray, counts: IntArray) -> Candidates:
    """Return the `counts[i]` best candidates of query i, or fewer if fewer are left; masked ones are never included.

    `scores` is (queries, entities). Ties go to the lower id, so that a query gets the same candidates alone and in a
    block.

    >>> queries = Queries(np.array([0, 0]), np.array([0, 1]), np.array([True, True]))
    >>> kept = top_candidates(queries, np.array([[0.5, 2.0, 0.5], [1.0, -np.inf, 3.0]]), np.array([2, 3]))
    >>> kept[0].tolist(), kept[1].tolist()
    ([1, 0], [2, 0])
    """
    if len(scores) != len(queries):
        raise DataError(
            f"there are {len(scores):,} rows of scores for {len(queries):,} queries, expected one per query."
        )
    counts = np.minimum(counts, scores.shape[1])
    parts = [
        _best_of_few(scores[start : start + _ROWS_AT_ONCE], counts[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(queries), _ROWS_AT_ONCE)
    ]
    kept_counts = np.concatenate([np.zeros(1, dtype=np.int64), *(part.counts for part in parts)])
    ids = np.concatenate([np.empty(0, dtype=np.int32), *(part.ids for part in parts)])
    return Candidates(np.cumsum(kept_counts), ids)


def _best_of_few(scores: FloatArray, counts: IntArray) -> Candidates:
    """Do the same for few enough queries that copying their scores is cheap."""
    rows, ids = np.nonzero((scores >= _lowest_kept(scores, counts)[:, None]) & (scores > -np.inf))
    offsets = np.searchsorted(rows, np.arange(len(scores) + 1))
    shape = len(scores), int(np.diff(offsets).max(initial=0))
    # Packed into rows of equal width in the order of their ids, which a stable sort preserves for ties.
    places = np.arange(len(rows)) - offsets[rows]
    negated, padded_ids = np.full(shape, np.inf, dtype=scores.dtype), np.zeros(shape, dtype=np.int32)
    negated[rows, places], padded_ids[rows, places] = -scores[rows, ids], ids
    sorted_ids = np.take_along_axis(padded_ids, np.argsort(negated, axis=1, kind="stable"), axis=1)
    kept_counts = np.minimum(counts, np.diff(offsets))
    is_kept = np.arange(shape[1]) < kept_counts[:, None]
    return Candidates(offsets_of(kept_counts), sorted_ids[is_kept])


def _lowest_kept(scores: FloatArray, counts: IntArray) -> FloatArray:
    """Find the lowest score that each query has a place for; shape (queries,)."""
    most = int(counts.max(initial=0))
    if most == 0:
        return np.full(len(scores), np.inf)
    best = np.partition(scores, scores.shape[1] - most, axis=1)[:, -most:]
    best.sort(axis=1)
    if np.isnan(best).any():  # NaN sorts after all numbers, so it is sure to be here
        raise DataError(
            "the scorer returned NaN. Every entity needs a score; use -inf for entities that must not be kept."
        )
    return best[np.arange(len(scores)), most - np.maximum(counts, 1)]


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
        return top_candidates(queries, scores, np.full(len(queries), min(self.k, scores.shape[1])))

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
                "head": _checked_ranks(tensors["head_ranks"]),
                "tail": _checked_ranks(tensors["tail_ranks"]),
            }
        return pruner


def _checked_ranks(saved: Any) -> FloatArray:  # noqa: ANN401 - whatever the file has
    ranks: FloatArray = np.asarray(saved)
    if ranks.ndim != 1 or len(ranks) == 0 or ranks.dtype.kind != "f" or not (np.isfinite(ranks) & (ranks >= 1)).all():
        raise ValueError(f"its ranks have shape {ranks.shape}, expected a list of numbers that are at least 1")
    return ranks


@dataclass(frozen=True)
class Capped:
    """Keeps what `pruner` keeps, but never more than the `k` best."""

    kind: ClassVar[str] = "capped"
    k: int
    pruner: Pruner

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise SettingsError(f"k is {self.k!r}, expected at least 1 candidate.")

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
        from cascader.cascade.pruners import load_pruner

        return cls(saved["k"], load_pruner(saved["of"], tensors))
