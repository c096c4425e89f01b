"""The interface of all pruners, and the selection of the best candidates that they share."""

from typing import Any, ClassVar, Protocol

import numpy as np

from cascader.errors import DataError, SettingsError
from cascader.graph import Array, Candidates, FloatArray, IntArray, Queries
from cascader.graph.arrays import offsets_of


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
