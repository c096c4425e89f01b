"""How much each entity says about each other: ridge regression of an entity's facts on those of all others.

Row e of the matrix X is what train says of entity e: 1 for each (relation, side, other entity) of a fact it takes part
in. The weights w of entity e minimize |x_e - w X|² + ridge |w|², with w_e = 0. For all entities at once that is one
inverse (EASE: Steck, arXiv:1905.03375). Where the graph is too large for it, `neighbors` does the same with fewer rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import FloatArray, IntArray, KnownAnswers, Queries
from cascader.graph.arrays import offsets_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The most memory for one block of dense numbers.
_BLOCK_BYTES = 64 << 20


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
