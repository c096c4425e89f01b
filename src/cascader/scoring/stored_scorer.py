"""The scorer that computes each pair only once: known scores come from a store, all others from an engine."""

from contextlib import closing
from functools import partial

import numpy as np

from cascader.display import progress
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.scoring.engine import Call, Engine, LocalEngine, PairKeys, Task, score_shard
from cascader.scoring.scorer import Scorer
from cascader.scoring.store import MemoryStore, Store, WriteBehind


class StoredScorer:
    """Scores like `scorer`, but computes each pair only once; missing scores are computed by the `engine`.

    `load` is how another process loads the same scorer; without it, everything is computed in this process.
    """

    reads_pairs = True

    def __init__(
        self,
        scorer: Scorer,
        kg: KnowledgeGraph,
        store: Store | None = None,
        engine: Engine | None = None,
        load: Call | None = None,
    ) -> None:
        self.scorer = scorer
        self.store = MemoryStore() if store is None else store
        self.engine = LocalEngine() if engine is None else engine
        self.pairs_asked = 0  #: how many pairs were requested, counting each distinct pair of a call once
        self.pairs_computed = 0  #: how many of them were not in the store
        self.numbering = PairKeys(len(kg.entities), len(kg.relations))
        # Scores for a store in this process's memory must be computed in this process.
        is_here = isinstance(self.store, MemoryStore | WriteBehind)
        self._task = Task(Call(score_shard, (self.numbering,)), None if is_here else load)

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query, taking known scores from the store; shape (candidates,)."""
        keys, place_of = np.unique(self.numbering.of(queries, candidates), return_inverse=True)
        self.pairs_asked += len(keys)
        scores = self.store.find(keys)
        missing = int(np.isnan(scores).sum())
        if missing:
            self._compute(keys, missing)
            scores = self.store.find(keys)
        return scores[place_of]

    def _compute(self, keys: IntArray, missing: int) -> None:
        run = partial(self.engine.run, self._task, loaded=self.scorer)
        with (
            progress("scoring pairs", total=missing, unit="pairs") as advance,
            closing(self.store.compute(keys, run)) as finished,  # an interrupt releases the store at once
        ):
            for count in finished:
                self.pairs_computed += count
                advance(count)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        count, entity_count = len(queries), self.numbering.entity_count
        everyone = np.tile(np.arange(entity_count, dtype=np.int32), count)
        candidates = Candidates(np.arange(count + 1) * entity_count, everyone)
        return self.score(queries, candidates).reshape(count, entity_count)
