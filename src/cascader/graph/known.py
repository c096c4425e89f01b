"""The known answers of a graph, as compressed rows."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cascader.graph.arrays import Candidates, Triples, offsets_of, positions_within, triple_keys
from cascader.graph.queries import Queries

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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
        self.triples = triples[first]  #: the facts that these answers come from, each once
        self._links: dict[int, csr_array] = {}
        queries = Queries.from_triples(self.triples)
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

    @cached_property
    def counts(self) -> "csr_array":
        """How many known facts each entity is the answer of; shape (2 × relations, entities), int32.

        Row r counts the facts of relation r that have the entity as their tail, row `relation_count` + r those that
        have it as their head: the same numbers as `Queries.directed_relations`.
        """
        from scipy.sparse import csr_array

        queries = Queries.from_triples(self.triples)
        rows = queries.directed_relations(self.relation_count)
        ones = np.ones(len(queries), dtype=np.int32)
        shape = (2 * self.relation_count, self.entity_count)
        return csr_array((ones, (rows, queries.required_golds())), shape=shape)

    def links(self, directed_relation: int) -> "csr_array":
        """Which entities a relation links: 1 at (anchor, answer), shape (entities, entities), float32.

        Relation r leads from heads to tails, `relation_count` + r from tails to heads.
        """
        from scipy.sparse import csr_array

        if directed_relation not in self._links:
            inverse, relation = divmod(directed_relation, self.relation_count)
            own = self.triples[self.triples[:, 1] == relation]
            anchors, answers = (own[:, 2], own[:, 0]) if inverse else (own[:, 0], own[:, 2])
            ones = np.ones(len(own), dtype=np.float32)
            shape = (self.entity_count, self.entity_count)
            self._links[directed_relation] = csr_array((ones, (anchors, answers)), shape=shape)
        return self._links[directed_relation]
