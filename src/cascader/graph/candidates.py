"""Lists of candidate entities, one per query, stored as one ragged array."""

from dataclasses import dataclass

import numpy as np

from cascader.graph.arrays import BoolArray, IntArray
from cascader.graph.ragged import offsets_of


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
