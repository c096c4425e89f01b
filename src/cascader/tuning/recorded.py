"""Scores that are computed once and looked up ever after: tuning is a replay."""

import time

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.scoring.scorer import Scorer

_QUESTIONS_AT_ONCE = 256


class RecordedScorer:
    """The rows of a scorer for some questions; it knows no others."""

    def __init__(self, scorer: Scorer, queries: Queries, kg: KnowledgeGraph) -> None:
        self._sizes = len(kg.entities), len(kg.relations)
        questions = queries.unique()[0]
        keys = questions.keys(*self._sizes)
        order = np.argsort(keys)
        self._keys = keys[order]
        started = time.perf_counter()
        blocks = [scorer.score_all(block) for block in questions[order].blocks(_QUESTIONS_AT_ONCE)]
        self.seconds_per_question = (time.perf_counter() - started) / max(len(questions), 1)
        self._rows = np.concatenate(blocks)  # (questions, entities)

    def score_all(self, queries: Queries) -> FloatArray:
        """The rows of the queries; shape (queries, entities)."""
        keys = queries.keys(*self._sizes)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        if (self._keys[places] != keys).any():
            raise DataError("this question was not asked when scores were recorded. Record it, or ask the tier itself.")
        return self._rows[places]

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]
