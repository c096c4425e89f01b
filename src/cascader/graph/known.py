"""The known answers of a graph, as compressed rows."""

import numpy as np

from cascader.graph.arrays import Triples, triple_keys
from cascader.graph.candidates import Candidates, offsets_of, positions_within
from cascader.graph.queries import Queries


class KnownAnswers:
    """The true answers to every question, found by binary search.

    >>> known = KnownAnswers(np.array([[0, 0, 1], [0, 0, 2]], dtype=np.int32), entity_count=3, relation_count=1)
    >>> known.of(Queries(np.array([0]), np.array([0]), np.array([True])))[0].tolist()
    [1, 2]
    """

    def __init__(self, triples: Triples, entity_count: int, relation_count: int) -> None:
        self.entity_count = entity_count
        self.relation_count = relation_count
        # A duplicate triple must count only once: each known answer is subtracted from a rank.
        _, first = np.unique(triple_keys(triples, entity_count, relation_count), return_index=True)
        queries = Queries.from_triples(triples[first])
        keys = queries.keys(self.entity_count, self.relation_count)
        answers = queries.required_golds()
        order = np.lexsort((answers, keys))  # by question, then answer
        self._questions, starts = np.unique(keys[order], return_index=True)
        self._offsets = np.append(starts, len(order))
        self._answers = answers[order]

    def of(self, queries: Queries) -> Candidates:
        """Return the known answers of each query, including gold answers, in ascending order."""
        keys = queries.keys(self.entity_count, self.relation_count)
        if len(self._questions) == 0:
            return Candidates.empty(len(queries))
        places = np.searchsorted(self._questions, keys).clip(max=len(self._questions) - 1)
        starts = self._offsets[places]
        is_known = self._questions[places] == keys
        counts = np.where(is_known, self._offsets[places + 1] - starts, 0)
        # The i-th answer of a query is i places after its question's first answer.
        return Candidates(offsets_of(counts), self._answers[np.repeat(starts, counts) + positions_within(counts)])
