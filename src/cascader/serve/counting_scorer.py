"""Which pairs of a question had to be scored, and which were in the store."""

from collections import Counter

import numpy as np

from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.scoring import PairKeys, ScoreStore, StoredScorer, WriteBehind


class CountingScorer:
    """Scores as `stored` does and counts the new pairs of each question; new scores reach its files in batches."""

    def __init__(self, stored: StoredScorer, kg: KnowledgeGraph) -> None:
        store = WriteBehind(stored.store) if isinstance(stored.store, ScoreStore) else stored.store
        self._stored = StoredScorer(stored.scorer, kg, store, stored.engine)
        self.new_pairs: Counter[int] = Counter()  #: by the question's key, since it was last cleared

    @property
    def numbering(self) -> PairKeys:
        """How pairs are numbered."""
        return self._stored.numbering

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        keys = np.unique(self.numbering.of(queries, candidates))
        missing = keys[np.isnan(self._stored.store.find(keys))]
        self.new_pairs.update((missing // self.numbering.entity_count).tolist())
        return self._stored.score(queries, candidates)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        return self._stored.score_all(queries)

    def write(self) -> None:
        """Write the scores that are still in memory only."""
        if isinstance(self._stored.store, WriteBehind):
            self._stored.store.write()
