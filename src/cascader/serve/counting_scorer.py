"""Which pairs of a question had to be read, and which were in the store."""

from collections import Counter

import numpy as np

from cascader.graph import Candidates, FloatArray, Queries
from cascader.scoring import PairKeys, ScoreStore, StoredScorer, WriteBehind
from cascader.scoring.scorer import Scorer


class Counted:
    """A stored scorer that tells of each question how many pairs were in no store; new scores are written together."""

    def __init__(self, stored: StoredScorer) -> None:
        self.stored = stored
        if isinstance(stored.store, ScoreStore):
            stored.store = WriteBehind(stored.store)
        self.new_pairs: Counter[int] = Counter()  #: since it was cleared, by the question's key

    @classmethod
    def shared(cls, scorer: Scorer, counted: dict[int, "Counted"]) -> "Scorer":
        """The one of this scorer among `counted`, made if there is none; a scorer without a store as it is."""
        if not isinstance(scorer, StoredScorer):
            return scorer
        return counted.setdefault(id(scorer), counted.get(id(scorer)) or cls(scorer))

    @property
    def numbering(self) -> PairKeys:
        """How pairs are numbered."""
        return self.stored.numbering

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        keys = np.unique(self.numbering.of(queries, candidates))
        missing = keys[np.isnan(self.stored.store.find(keys))]
        self.new_pairs.update((missing // self.numbering.entity_count).tolist())
        return self.stored.score(queries, candidates)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        return self.stored.score_all(queries)

    def write(self) -> None:
        """Write what is new."""
        if isinstance(self.stored.store, WriteBehind):
            self.stored.store.write()
