"""The floor under every model: answer with whatever answers most often."""

from typing import TYPE_CHECKING, Any

import numpy as np

from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Frequency:
    """Scores an entity by how often it fills the asked side of the relation in train, whatever the anchor.

    It knows nothing of the anchor, so whatever a model gains over it was learnt about the question itself.
    Among entities that fill the side equally often, the one with more triples comes first.

    >>> kg = KnowledgeGraph.from_triples([("a", "treats", "x"), ("b", "treats", "x"), ("b", "treats", "y")])
    >>> scores = Frequency().fit(kg).score_all(kg.query("a", "treats"))[0]
    >>> [kg.entities[entity].id for entity in (-scores).argsort()]
    ['x', 'y', 'b', 'a']
    """

    counts_: "csr_array"  # (2 × relations, entities): the head side of each relation, then the tail side
    popularity_: FloatArray  # (entities,) in [0, 1)

    def fit(self, kg: KnowledgeGraph) -> "Frequency":
        """Count the train triples."""
        from scipy.sparse import csr_array

        self._relation_count = len(kg.relations)
        queries = Queries.from_triples(kg.train)
        ones = np.ones(len(queries), dtype=np.float32)
        shape = (2 * len(kg.relations), len(kg.entities))
        self.counts_ = csr_array((ones, (self._rows(queries), queries.required_golds())), shape=shape)
        # Below 1, so that it only ever decides between equal counts.
        self.popularity_ = (kg.degrees() / (2 * len(kg.train) + 1)).astype(np.float32)
        return self

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        scores: FloatArray = self.counts_[self._rows(queries)].toarray() + self.popularity_
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        rows = np.repeat(self._rows(queries), candidates.counts)
        counts: Any = self.counts_[rows, candidates.ids]
        scores: FloatArray = counts + self.popularity_[candidates.ids]
        return scores

    def _rows(self, queries: Queries) -> IntArray:
        return queries.predicts_tail * self._relation_count + queries.relations
