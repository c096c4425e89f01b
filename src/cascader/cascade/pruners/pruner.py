"""What all pruners have in common, and the selection that each of them makes."""

from typing import Any, ClassVar, Protocol

import numpy as np

from cascader.errors import DataError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries
from cascader.graph.candidates import offsets_of


class Pruner(Protocol):
    """Chooses candidates from a tier's scores; known answers have been masked with -inf before.

    `kind` names it in files and reports, and `str(pruner)` says in a few words how many it keeps.
    """

    kind: ClassVar[str]

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; `scores` is (queries, entities)."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Its kind, its settings and the few numbers it has learned, ready for JSON."""
        ...

    def tensors(self) -> dict[str, Array]:
        """The arrays it has learned, by name."""
        ...


def check_share(name: str, value: object) -> None:
    """A quantile and a coverage are shares of the queries: never none of them, never all."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingsError(f"{name} is {value!r}, expected a number above 0 and below 1, such as 0.9.")


#: Few enough for their copies to stay in the processor's cache.
_ROWS_AT_ONCE = 64


def top_candidates(queries: Queries, scores: FloatArray, counts: IntArray) -> Candidates:
    """The `counts[i]` best candidates of query i, fewer where fewer are left; what is masked is never among them.

    `scores` is (queries, entities). Among equal scores the lower id comes first, so that a query gets the same
    candidates alone and in a block.

    >>> asked = Queries(np.array([0, 0]), np.array([0, 1]), np.array([True, True]))
    >>> kept = top_candidates(asked, np.array([[0.5, 2.0, 0.5], [1.0, -np.inf, 3.0]]), np.array([2, 3]))
    >>> kept[0].tolist(), kept[1].tolist()
    ([1, 0], [2, 0])
    """
    if len(scores) != len(queries):
        raise DataError(f"there are {len(scores):,} rows of scores for {len(queries):,} queries, expected one a query.")
    counts = np.minimum(counts, scores.shape[1])
    parts = [
        _best_of_few(scores[start : start + _ROWS_AT_ONCE], counts[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(queries), _ROWS_AT_ONCE)
    ]
    kept_counts = np.concatenate([np.zeros(1, dtype=np.int64), *(part.counts for part in parts)])
    ids = np.concatenate([np.empty(0, dtype=np.int32), *(part.ids for part in parts)])
    return Candidates(np.cumsum(kept_counts), ids)


def _best_of_few(scores: FloatArray, counts: IntArray) -> Candidates:
    """The same for so few queries that copies of their scores are no burden."""
    rows, ids = np.nonzero((scores >= _lowest_kept(scores, counts)[:, None]) & (scores > -np.inf))
    offsets = np.searchsorted(rows, np.arange(len(scores) + 1))
    shape = len(scores), int(np.diff(offsets).max(initial=0))
    # Side by side in rows of one width, in the order of their ids, which a stable sort leaves to equal scores.
    places = np.arange(len(rows)) - offsets[rows]
    negated, padded_ids = np.full(shape, np.inf, dtype=scores.dtype), np.zeros(shape, dtype=np.int32)
    negated[rows, places], padded_ids[rows, places] = -scores[rows, ids], ids
    sorted_ids = np.take_along_axis(padded_ids, np.argsort(negated, axis=1, kind="stable"), axis=1)
    kept_counts = np.minimum(counts, np.diff(offsets))
    is_kept = np.arange(shape[1]) < kept_counts[:, None]
    return Candidates(offsets_of(kept_counts), sorted_ids[is_kept])


def _lowest_kept(scores: FloatArray, counts: IntArray) -> FloatArray:
    """The score of the last candidate that each query has a place for; shape (queries,)."""
    most = int(counts.max(initial=0))
    if most == 0:
        return np.full(len(scores), np.inf)
    best = np.partition(scores, scores.shape[1] - most, axis=1)[:, -most:]
    best.sort(axis=1)
    if np.isnan(best).any():  # sorted behind all numbers, NaN is sure to be here
        raise DataError("the scorer returned NaN. Every entity needs a score; use -inf for what must not go on.")
    return best[np.arange(len(scores)), most - np.maximum(counts, 1)]
