"""How much each entity's nearest neighbors say about it: the regression of `likeness`, for graphs of any size."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cascader.durations import format_duration
from cascader.events import emit
from cascader.graph import FloatArray, IntArray
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.similarity.regression import Features, Likeness, rows_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: What more entities share than this proposes a sample of them as neighbors.
_PROPOSED = 1_000
#: The most weights of all entities together: 400 MB.
_MOST_WEIGHTS = 50_000_000
#: Pairs of entities that are compared at once.
_PAIRS_AT_ONCE = 4_000_000
#: Entities on which the time for all of them is measured.
_TRIAL = 200
_FEWEST_NEIGHBORS = 8


class Regression(NamedTuple):
    """What was found for one entity."""

    entity: int
    neighbors: IntArray  # ascending
    weights: FloatArray  # (neighbors,)
    shares: FloatArray  # (cells of the entity's row,) how much each adds to its own prediction


def nearest_neighbors(features: Features, ridge: float, neighbors: int, time_limit: float) -> Likeness:
    """Regress every entity on its nearest neighbors, on fewer of them where the time is short.

    If there is no time even for a few, the entities with the most facts have neighbors, and the others none.
    """
    deadline = time.monotonic() + time_limit
    matrix, proposing = features.matrix, _proposing(features.matrix)
    by_facts = np.argsort(-np.diff(matrix.indptr), kind="stable")
    most = min(neighbors, max(_FEWEST_NEIGHBORS, _MOST_WEIGHTS // len(by_facts)))
    count = _affordable(matrix, proposing, ridge, most, deadline)
    found = []
    for regression in _regressions(matrix, proposing, ridge, count, by_facts):
        found.append(regression)
        if time.monotonic() > deadline:
            break
    if count < neighbors or len(found) < len(by_facts):
        _say_how_far(len(found), len(by_facts), count, time_limit)
    return _joined(features, found)


def _say_how_far(reached: int, total: int, neighbors: int, time_limit: float) -> None:
    which = "all" if reached == total else f"{reached:,} of {total:,}"
    within = f" in {format_duration(time_limit)}" if np.isfinite(time_limit) else ""
    emit("similarity", f"Compared {which} entities, beginning with the best known, with {neighbors} neighbors{within}.")


def _affordable(matrix: "csr_array", proposing: "csr_array", ridge: float, most: int, deadline: float) -> int:
    """Halve the number of neighbors until a sample of the entities says that all can be done before the deadline."""
    entities = np.random.default_rng(0).permutation(matrix.shape[0])
    count = most
    while np.isfinite(deadline) and count > _FEWEST_NEIGHBORS:
        started = time.monotonic()
        trial = sum(1 for _ in islice(_regressions(matrix, proposing, ridge, count, entities[:_TRIAL]), _TRIAL))
        ended = time.monotonic()
        if (ended - started) * len(entities) / trial < deadline - ended:
            break
        count = max(_FEWEST_NEIGHBORS, count // 2)
    return count


def _regressions(
    matrix: "csr_array", proposing: "csr_array", ridge: float, count: int, entities: IntArray
) -> Iterator[Regression]:
    """Find the neighbors of each entity block by block, those with the largest cosine, and regress it on them."""
    proposed = offsets_of(np.diff(proposing.indptr)[matrix.indices])[matrix.indptr]  # by all rows before each
    blocks = np.cumsum(np.diff(proposed)[entities]) // _PAIRS_AT_ONCE
    for block in np.split(entities, np.flatnonzero(np.diff(blocks)) + 1):
        cosines = (matrix[block] @ proposing).tocsr()  # up to the length of the entity's own row
        for row, entity in enumerate(block):
            cells = slice(cosines.indptr[row], cosines.indptr[row + 1])
            neighbors = _nearest(cosines.indices[cells], cosines.data[cells], entity, count)
            yield _regression(matrix, int(entity), neighbors, ridge)


def _nearest(ids: IntArray, cosines: FloatArray, entity: int, count: int) -> IntArray:
    is_other = ids != entity
    ids, cosines = ids[is_other], cosines[is_other]
    nearest: IntArray = np.sort(ids[np.lexsort((ids, -cosines))[:count]]).astype(np.int32)
    return nearest


def _proposing(matrix: "csr_array") -> "csr_array":
    """For each column, entities that have it, at most a sample, each weighted as in its row of length 1."""
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    lengths = np.sqrt(np.bincount(rows, matrix.data**2, matrix.shape[0])).astype(np.float32)
    columns = csr_array((matrix.data / lengths[rows], matrix.indices, matrix.indptr), shape=matrix.shape).T.tocsr()
    counts = np.diff(columns.indptr)
    shuffled = np.lexsort((np.random.default_rng(0).random(columns.nnz), np.repeat(np.arange(len(counts)), counts)))
    kept = np.sort(shuffled[positions_within(counts) < _PROPOSED])
    offsets = offsets_of(np.minimum(counts, _PROPOSED))
    return csr_array((columns.data[kept], columns.indices[kept], offsets), shape=columns.shape)


def _regression(matrix: "csr_array", entity: int, neighbors: IntArray, ridge: float) -> Regression:
    from scipy.linalg import cho_factor, cho_solve
    from scipy.sparse import csr_array

    own = slice(matrix.indptr[entity], matrix.indptr[entity + 1])
    shares = np.zeros(own.stop - own.start, dtype=np.float32)
    if len(neighbors) == 0:
        return Regression(entity, neighbors, np.empty(0, dtype=np.float32), shares)
    others = matrix[neighbors]
    # Only the columns that the neighbors have: a large graph has millions.
    columns, places = np.unique(others.indices, return_inverse=True)
    others = csr_array((others.data.astype(np.float64), places, others.indptr), shape=(len(neighbors), len(columns)))
    gram = (others @ others.T).toarray()
    gram[np.diag_indices(len(neighbors))] += ridge
    is_shared = np.isin(matrix.indices[own], columns)
    shared = others[:, np.searchsorted(columns, matrix.indices[own][is_shared])].toarray()  # (neighbors, shared cells)
    solved = cho_solve(cho_factor(gram, lower=True), shared)
    shares[is_shared] = (shared * solved).sum(axis=0)
    return Regression(entity, neighbors, (solved @ matrix.data[own][is_shared]).astype(np.float32), shares)


def _joined(features: Features, found: Sequence[Regression]) -> Likeness:
    """One matrix of all weights, (entities, entities), and the shares of all facts."""
    matrix = features.matrix
    counts, shares = np.zeros(matrix.shape[0], dtype=np.int64), np.zeros(matrix.nnz, dtype=np.float32)
    for regression in found:
        counts[regression.entity] = len(regression.neighbors)
        shares[matrix.indptr[regression.entity] : matrix.indptr[regression.entity + 1]] = regression.shares
    in_order = sorted(found, key=lambda regression: regression.entity)
    ids = np.concatenate([np.empty(0, dtype=np.int32), *(regression.neighbors for regression in in_order)])
    weights = np.concatenate([np.empty(0, dtype=np.float32), *(regression.weights for regression in in_order)])
    return Likeness(rows_of(offsets_of(counts), ids, weights), features.fact_shares(shares))
