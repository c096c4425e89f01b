"""How much each entity says about each other: ridge regression of an entity's facts on those of all others.

Row e of the matrix X is what train says of entity e: 1 for each (relation, side, other entity) of a fact it takes part
in. The weights w of entity e minimize |x_e - w X|² + ridge |w|², with w_e = 0. For all entities at once that is one
inverse (EASE: Steck, arXiv:1905.03375); where the graph is too large for it, each entity is compared with its nearest
neighbors only, which is the same regression on fewer rows.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import FloatArray, IntArray, KnownAnswers, Queries
from cascader.graph.candidates import offsets_of, positions_within

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The most memory for one block of dense numbers, and for the products of one block of neighbors.
_BLOCK_BYTES = 64 << 20
#: What a search for neighbors does at once: entities that share a fact, over all entities of a block.
_BLOCK_PRODUCTS = 4_000_000
#: Entities on which the time for all of them is measured.
_TRIAL_ENTITIES = 200
_FEWEST_NEIGHBORS = 8


@dataclass(frozen=True, eq=False)
class Likeness:
    """What the regression found, for each entity and for each fact."""

    weights: "csr_array | FloatArray"  # (entities, entities) float32: row e is what the facts of e are predicted from
    shares: FloatArray  # (facts,) how much of the prediction of a fact is due to the fact itself, seen from both ends


@dataclass(frozen=True)
class Neighborhood:
    """How widely each entity is compared with others."""

    neighbors: int  # the most for each entity
    sample: int  # entities that a fact shared by more of them can propose

    def halved(self) -> "Neighborhood":
        """Half of both, but never too few to say anything."""
        return Neighborhood(max(_FEWEST_NEIGHBORS, self.neighbors // 2), max(_FEWEST_NEIGHBORS, self.sample // 2))


class Features:
    """The matrix X of a graph, each column weighted by how rare it is.

    >>> known = KnownAnswers(np.array([[0, 0, 2], [1, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> (Features(known, rarity=2.0).matrix).toarray().tolist()  # the tail that two heads share counts half
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


def nearest_neighbors(
    features: Features, ridge: float, wanted: Neighborhood, time_limit: float
) -> tuple[Likeness, Neighborhood]:
    """Regress every entity on its nearest neighbors, as many as the time allows, and say how many those were."""
    deadline = time.monotonic() + time_limit
    width = _affordable(features.matrix, ridge, wanted, time_limit)
    count = features.matrix.shape[0]
    counts, ids, weights, shares = _regressions(features.matrix, ridge, width, np.arange(count), deadline)
    return Likeness(rows_of(offsets_of(counts), ids, weights), features.fact_shares(shares)), width


def _affordable(matrix: "csr_array", ridge: float, wanted: Neighborhood, time_limit: float) -> Neighborhood:
    """Halve the neighborhood until a sample of the entities says that all of them can be done in half of the time."""
    count = matrix.shape[0]
    trial = np.random.default_rng(0).permutation(count)[:_TRIAL_ENTITIES]
    width = wanted
    while np.isfinite(time_limit) and width != width.halved():
        started = time.monotonic()
        _regressions(matrix, ridge, width, trial, started + time_limit / 10)
        if (time.monotonic() - started) * count / len(trial) < time_limit / 2:
            break
        width = width.halved()
    return width


def _regressions(
    matrix: "csr_array", ridge: float, width: Neighborhood, entities: IntArray, deadline: float
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """The neighbors of each entity, (entities,) counts and their ids and weights, and the shares of its cells.

    Entities that are not reached before the deadline have no neighbors, and their cells no shares.
    """
    counts = np.zeros(len(entities), dtype=np.int64)
    ids: list[IntArray] = [np.empty(0, np.int32)]
    weights: list[FloatArray] = [np.empty(0, np.float32)]
    shares: list[FloatArray] = []
    done = 0
    for place, (entity, neighbors) in enumerate(_neighbors(matrix, width, entities)):
        if time.monotonic() > deadline:
            break
        own_weights, own_shares = _regression(matrix, entity, neighbors, ridge)
        counts[place] = len(neighbors)
        ids.append(neighbors)
        weights.append(own_weights)
        shares.append(own_shares)
        done += len(own_shares)
    cells = int(np.diff(matrix.indptr)[entities].sum())
    shares.append(np.zeros(cells - done, dtype=np.float32))
    return counts, np.concatenate(ids), np.concatenate(weights), np.concatenate(shares)


def _neighbors(matrix: "csr_array", width: Neighborhood, entities: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Each entity with those whose rows have the largest cosine with its own, in ascending order."""
    lengths = np.sqrt(np.add.reduceat(np.append(matrix.data**2, 0), matrix.indptr[:-1]))
    lengths[np.diff(matrix.indptr) == 0] = 1  # reduceat gives a neighbor's number where a row is empty
    proposing = _sampled(matrix.T.tocsr(), width.sample)
    proposing.data /= lengths[proposing.indices]
    proposed = offsets_of(np.diff(proposing.indptr)[matrix.indices])[matrix.indptr]  # by all rows before each
    blocks = np.cumsum(np.diff(proposed)[entities]) // _BLOCK_PRODUCTS
    for block in np.split(entities, np.flatnonzero(np.diff(blocks)) + 1):
        cosines = (matrix[block] @ proposing).tocsr()
        for row, entity in enumerate(block):
            cells = slice(cosines.indptr[row], cosines.indptr[row + 1])
            yield int(entity), _nearest(cosines.indices[cells], cosines.data[cells], entity, width.neighbors)


def _nearest(ids: IntArray, cosines: FloatArray, entity: int, count: int) -> IntArray:
    is_other = ids != entity
    ids, cosines = ids[is_other], cosines[is_other]
    nearest: IntArray = np.sort(ids[np.lexsort((ids, -cosines))[:count]]).astype(np.int32)
    return nearest


def _sampled(rows: "csr_array", count: int) -> "csr_array":
    """At most `count` random cells of each row."""
    from scipy.sparse import csr_array

    counts = np.diff(rows.indptr)
    shuffled = np.lexsort((np.random.default_rng(0).random(rows.nnz), np.repeat(np.arange(len(counts)), counts)))
    kept = np.sort(shuffled[positions_within(counts) < count])
    offsets = offsets_of(np.minimum(counts, count))
    return csr_array((rows.data[kept], rows.indices[kept], offsets), shape=rows.shape)


def _regression(matrix: "csr_array", entity: int, neighbors: IntArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """The weights of an entity's neighbors, (neighbors,), and the shares of its own cells, (cells,)."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.sparse import csr_array

    cells = slice(matrix.indptr[entity], matrix.indptr[entity + 1])
    others = matrix[neighbors]
    if len(neighbors) == 0:
        return np.empty(0, np.float32), np.zeros(cells.stop - cells.start, np.float32)
    # Only the columns that occur, as a large graph has millions.
    columns, places = np.unique(others.indices, return_inverse=True)
    compact = csr_array((others.data.astype(np.float64), places, others.indptr), shape=(len(neighbors), len(columns)))
    gram = (compact @ compact.T).toarray()
    gram[np.diag_indices(len(neighbors))] += ridge
    shared = np.isin(matrix.indices[cells], columns)
    at = np.searchsorted(columns, matrix.indices[cells][shared])
    seen = compact[:, at].toarray()  # (neighbors, shared cells)
    solved = cho_solve(cho_factor(gram, lower=True), seen)
    shares = np.zeros(cells.stop - cells.start, dtype=np.float32)
    shares[shared] = (seen * solved).sum(axis=0)
    return (solved @ matrix.data[cells][shared]).astype(np.float32), shares


def rows_of(offsets: IntArray, ids: IntArray, weights: FloatArray) -> "csr_array":
    """The weights of each entity's neighbors as a square matrix of rows."""
    from scipy.sparse import csr_array

    return csr_array((weights, ids, offsets), shape=(len(offsets) - 1, len(offsets) - 1))


def _row_blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of rows that are `width` float32 numbers long, each within the memory of a block."""
    size = max(1, _BLOCK_BYTES // (4 * max(1, width)))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
