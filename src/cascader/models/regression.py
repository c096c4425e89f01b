"""How much each entity says about each other: ridge regression of an entity's facts on those of all others.

Row e of the matrix X is what train says of entity e: 1 for each (relation, side, other entity) of a fact it takes part
in. The weights w of entity e minimize |x_e - w X|² + ridge |w|², with w_e = 0. For all entities at once that is one
inverse (EASE: Steck, arXiv:1905.03375). Where the graph is too large for it, an entity's nearest neighbors have to do.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cascader.display import emit
from cascader.durations import format_duration
from cascader.errors import SettingsError
from cascader.graph import FloatArray, IntArray, KnownAnswers, Queries
from cascader.graph.arrays import offsets_of, positions_within

if TYPE_CHECKING:
    from scipy.sparse import csr_array


#: The most memory for one block of dense numbers.
_BLOCK_BYTES = 64 << 20
#: What more entities share than this proposes a sample of them as neighbors.
_PROPOSED = 1_000
#: The most weights of all entities together: 400 MB.
_MOST_WEIGHTS = 50_000_000
#: Pairs of entities that are compared at once.
_PAIRS_AT_ONCE = 4_000_000
#: Entities on which the time for all of them is measured.
_TRIAL = 200
_FEWEST_NEIGHBORS = 8


@dataclass(frozen=True, eq=False)
class Likeness:
    """What the regression found, for each entity and for each fact."""

    weights: "csr_array | FloatArray"  # (entities, entities) float32: row e is what the facts of e are predicted from
    shares: FloatArray  # (facts,) how much of the prediction of a fact is due to the fact itself, seen from both ends


class Features:
    """The matrix X of a graph, each column weighted by how rare it is.

    >>> known = KnownAnswers(np.array([[0, 0, 2], [1, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> Features(known, rarity=2.0).matrix.toarray().tolist()  # the tail that two heads share counts half
    [[0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """

    def __init__(self, known: KnownAnswers, rarity: float) -> None:
        from scipy.sparse import csr_array

        cells = Queries.from_triples(known.triples)  # each fact from its head, then each from its tail
        sided = cells.directed_relations(known.relation_count) * known.entity_count + cells.required_golds()
        _, columns, counts = np.unique(sided, return_inverse=True, return_counts=True)
        #: The cells in the order of the matrix.
        self.order = np.lexsort((columns, cells.anchors))
        rows, columns = cells.anchors[self.order], columns[self.order]
        offsets = offsets_of(np.bincount(rows, minlength=known.entity_count))
        # The root, as a product of two rows has the weight twice.
        values = (counts[columns] ** (-rarity / 2)).astype(np.float32)
        self.matrix = csr_array((values, columns, offsets), shape=(known.entity_count, len(counts)))

    def fact_shares(self, of_cells: FloatArray) -> FloatArray:
        """Sum what both cells of a fact have; `of_cells` is in the order of the matrix, the result in that of facts."""
        shares = np.empty(len(of_cells), dtype=np.float32)
        shares[self.order] = of_cells
        total: FloatArray = shares.reshape(2, -1).sum(axis=0)
        return total


def closed_form(features: Features, ridge: float) -> Likeness:
    """Regress every entity on all others, by one inverse."""
    inverse = _inverse(features.matrix, ridge)  # (entities, entities)
    shares = _shares(features.matrix, inverse)
    diagonal = inverse.diagonal().copy()
    np.fill_diagonal(inverse, 0)
    inverse /= -diagonal[:, None]  # row e of a symmetric matrix over its own diagonal
    return Likeness(inverse, features.fact_shares(shares))


def _inverse(matrix: "csr_array", ridge: float) -> FloatArray:
    """The inverse of X Xᵀ + ridge by Cholesky's method, in place; shape (entities, entities), float32."""
    from scipy.linalg.lapack import spotrf, spotri

    count = matrix.shape[0]
    gram = np.zeros((count, count), dtype=np.float32)
    transposed = matrix.T.tocsr()
    for rows in _row_blocks(count, count):
        gram[rows] = (matrix[rows] @ transposed).toarray()
    gram[np.diag_indices(count)] += ridge
    # LAPACK counts columns first; a symmetric matrix is its own transpose, so nothing is copied.
    factor, failed = spotrf(gram.T, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise SettingsError(f"ridge is {ridge:g}, which is too small for float32 on this graph. Use a larger one.")
    lower, _ = spotri(factor, lower=1, overwrite_c=1)
    inverse: FloatArray = lower.T  # its upper triangle is filled
    for rows in _row_blocks(count, count):
        inverse[rows.stop :, rows] = inverse[rows, rows.stop :].T
        corner = inverse[rows, rows]
        inverse[rows, rows] = np.triu(corner) + np.triu(corner, 1).T
    return inverse


def _shares(matrix: "csr_array", inverse: FloatArray) -> FloatArray:
    """How much each cell of X adds to its own prediction (its leverage); in the order of the matrix, (cells,).

    Without row e, the inverse is P - p_e p_eᵀ / P_ee, so the share of cell (e, column x) is xᵀPx - (xᵀp_e)² / P_ee.
    """
    from scipy.sparse import csr_array

    numbered = csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape).T.tocsr()
    transposed = matrix.T.tocsr()  # (columns, entities)
    shares = np.empty(matrix.nnz, dtype=np.float32)
    for block in _row_blocks(*transposed.shape):
        columns = transposed[block]
        places = slice(transposed.indptr[block.start], transposed.indptr[block.stop])
        rows = np.repeat(np.arange(columns.shape[0]), np.diff(columns.indptr))
        along = (columns @ inverse)[rows, columns.indices]  # xᵀp_e
        whole = np.bincount(rows, columns.data * along, columns.shape[0])  # xᵀPx
        shares[numbered.data[places]] = whole[rows] - along**2 / inverse.diagonal()[columns.indices]
    return shares


def rows_of(offsets: IntArray, ids: IntArray, weights: FloatArray) -> "csr_array":
    """The weights of each entity's neighbors as a square matrix of rows."""
    from scipy.sparse import csr_array

    return csr_array((weights, ids, offsets), shape=(len(offsets) - 1, len(offsets) - 1))


def _row_blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of rows that are `width` float32 numbers long, each within the memory of a block."""
    size = max(1, _BLOCK_BYTES // (4 * max(1, width)))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


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
