"""Ragged lists of entities, one list per query."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascader.graph.arrays import BoolArray, IntArray


def offsets_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Where lists of these lengths start and end; shape (lists + 1,).

    >>> offsets_of([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def positions_within(counts: IntArray) -> NDArray[np.int64]:
    """The position of each element in its own list, for lists of these lengths; shape (elements,).

    >>> positions_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    offsets = offsets_of(counts)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Entities to consider for each query: query i has `ids[offsets[i]:offsets[i + 1]]`.

    >>> candidates = Candidates.from_lists([[4, 2], [], [7]])
    >>> candidates.counts.tolist(), candidates.rows.tolist()
    ([2, 0, 1], [0, 0, 2])
    """

    offsets: IntArray  # (queries + 1,)
    ids: IntArray  # (candidates,)

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> "Candidates":
        """Build from lists of entity indices, one per query."""
        flat = [entity for ids in lists for entity in ids]
        return cls(offsets_of([len(ids) for ids in lists]), np.array(flat, dtype=np.int32))

    @classmethod
    def empty(cls, query_count: int) -> "Candidates":
        """No candidates for any of `query_count` queries."""
        return cls(np.zeros(query_count + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> IntArray:
        return self.ids[self.offsets[query] : self.offsets[query + 1]]

    def where(self, wanted: BoolArray) -> "Candidates":
        """Only the candidates where `wanted`, (candidates,), is True; the queries stay the same."""
        return Candidates(offsets_of(wanted)[self.offsets], self.ids[wanted])

    @property
    def counts(self) -> IntArray:
        """How many candidates each query has; shape (queries,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> IntArray:
        """The query that each candidate belongs to; shape (candidates,)."""
        return np.repeat(np.arange(len(self)), self.counts)
