"""Ragged lists of entities, a list a query."""

from dataclasses import dataclass

import numpy as np

from cascader.graph.arrays import BoolArray, IntArray


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
        """Build from one list of entity indices a query."""
        counts = [len(ids) for ids in lists]
        flat = [entity for ids in lists for entity in ids]
        return cls(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), np.array(flat, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> IntArray:
        return self.ids[self.offsets[query] : self.offsets[query + 1]]

    def where(self, wanted: BoolArray) -> "Candidates":
        """Only the candidates that are `wanted`, (candidates,), each with its query."""
        before = np.concatenate([[0], np.cumsum(wanted)])
        return Candidates(before[self.offsets], self.ids[wanted])

    @property
    def counts(self) -> IntArray:
        """How many candidates each query has; shape (queries,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> IntArray:
        """The query that each candidate belongs to; shape (candidates,)."""
        return np.repeat(np.arange(len(self)), self.counts)
