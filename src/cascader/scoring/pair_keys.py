"""One number for a question with a candidate, and back."""

from dataclasses import dataclass

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, IntArray, Queries


@dataclass(frozen=True)
class PairKeys:
    """Numbers the pairs of a graph; sorted, those of a question stand together.

    >>> numbering = PairKeys(entity_count=5, relation_count=2)
    >>> keys = numbering.of(Queries(np.array([3]), np.array([1]), np.array([False])), Candidates.from_lists([[0, 4]]))
    >>> queries, candidates = numbering.pairs(keys)
    >>> queries.anchors.tolist(), queries.relations.tolist(), candidates.ids.tolist()
    ([3], [1], [0, 4])
    """

    entity_count: int
    relation_count: int

    def __post_init__(self) -> None:
        if 2 * self.relation_count * self.entity_count**2 >= 2**63:
            raise DataError(
                f"{self.entity_count:,} entities with {self.relation_count:,} relations make more pairs than 64 bits "
                "can number. Score without a store."
            )

    def of(self, queries: Queries, candidates: Candidates) -> IntArray:
        """The number of each pair; shape (candidates,)."""
        questions = queries.keys(self.entity_count, self.relation_count)
        return questions[candidates.rows] * self.entity_count + candidates.ids

    def pairs(self, keys: IntArray) -> tuple[Queries, Candidates]:
        """The pairs that sorted numbers stand for, each question once."""
        questions, starts = np.unique(keys // self.entity_count, return_index=True)
        sided, anchors = np.divmod(questions, self.entity_count)
        queries = Queries(
            anchors=anchors.astype(np.int32),
            relations=(sided % self.relation_count).astype(np.int32),
            predicts_tail=sided >= self.relation_count,
        )
        return queries, Candidates(np.append(starts, len(keys)), (keys % self.entity_count).astype(np.int32))
