"""What a candidate is judged by: how many facts it has of each relation and side, and how it is linked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from cascader.graph import IntArray, KnownAnswers, Queries
from cascader.graph.arrays import Array, offsets_of, positions_within

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: The smallest count of each bin after the first, which is for no fact at all.
BINS = np.array([1, 2, 3, 5, 9])


def bins_of(counts: IntArray) -> IntArray:
    """The bin of each count, from 0 for no fact to `len(BINS)`.

    >>> bins_of(np.array([0, 1, 4, 200])).tolist()
    [0, 1, 3, 5]
    """
    return np.searchsorted(BINS, counts, side="right")


def features_of(directed: IntArray, counts: IntArray) -> IntArray:
    """The feature of having that many facts, at least one, of each directed relation."""
    return directed * len(BINS) + bins_of(counts) - 1


@dataclass(frozen=True, eq=False)
class Links:
    """Some facts, each seen from one of its two entities."""

    rows: IntArray  # (links,) the position of the entity among those asked for
    answers: IntArray  # (links,) the entity at the other end
    directed: IntArray  # (links,) the directed relation that leads there


@dataclass(frozen=True, eq=False)
class Evidence:
    """What known facts say of every entity.

    >>> known = KnownAnswers(np.array([[0, 0, 1], [0, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> Evidence.of(known).links_of(np.array([0])).answers.tolist()
    [1, 2]
    """

    counts: "csr_array"  # (2 × relations, entities) int32: the facts that an entity is the answer of
    features: "csr_array"  # (entities, 2 × relations × bins) float32: 1 where a count is in a bin; none for no fact
    _offsets: IntArray  # (entities + 1,) where the links of each entity start
    _answers: IntArray  # (2 × facts,)
    _directed: IntArray  # (2 × facts,)

    @classmethod
    def of(cls, known: KnownAnswers) -> "Evidence":
        """The evidence that these facts give; made once, for as long as they exist."""
        if known not in _MADE:
            _MADE[known] = cls._made(known)
        return _MADE[known]

    @classmethod
    def _made(cls, known: KnownAnswers) -> "Evidence":
        from scipy.sparse import csr_array

        counts = known.counts.tocoo()
        shape = (known.entity_count, counts.shape[0] * len(BINS))
        ones = np.ones(counts.nnz, dtype=np.float32)
        features = csr_array((ones, (counts.col, features_of(counts.row, counts.data))), shape=shape)
        queries = Queries.from_triples(known.triples)
        order = np.argsort(queries.anchors, kind="stable")
        return cls(
            known.counts,
            features,
            offsets_of(np.bincount(queries.anchors, minlength=known.entity_count)),
            queries.required_golds()[order],
            queries.directed_relations(known.relation_count)[order],
        )

    def count(self, directed: IntArray, entities: IntArray) -> IntArray:
        """How many facts of a directed relation each entity is the answer of; shape as both."""
        return values_at(self.counts, directed, entities)

    def links_of(self, entities: IntArray) -> Links:
        """The facts of each entity, except those that link it to itself."""
        starts = self._offsets[entities]
        counts = self._offsets[entities + 1] - starts
        places = np.repeat(starts, counts) + positions_within(counts)
        rows = np.repeat(np.arange(len(entities)), counts)
        others = self._answers[places] != entities[rows]
        return Links(rows[others], self._answers[places][others], self._directed[places][others])


def values_at(matrix: "csr_array", rows: IntArray, columns: IntArray) -> Array:
    """The values of a sparse matrix with sorted indices at pairs of a row and a column; shape (pairs,).

    By binary search in all rows at once: scipy's own look-up scans a row from its beginning, once for each pair.
    """
    if matrix.nnz == 0:
        return np.zeros(len(rows), dtype=matrix.dtype)
    low, end = (matrix.indptr[rows + step].astype(np.int64) for step in (0, 1))
    high, last = end, matrix.nnz - 1
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_below = is_open & (matrix.indices[np.minimum(middle, last)] < columns)
        low, high = np.where(is_below, middle + 1, low), np.where(is_open & ~is_below, middle, high)
    places = np.minimum(low, last)
    is_found = (low < end) & (matrix.indices[places] == columns)
    return np.where(is_found, matrix.data[places], matrix.dtype.type(0))


#: By what they were made from, and forgotten with it.
_MADE: WeakKeyDictionary[KnownAnswers, Evidence] = WeakKeyDictionary()
