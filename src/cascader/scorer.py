"""What a tier, an ensemble and a cascade have in common: they score answers."""

from typing import Protocol

from cascader.graph import Candidates, FloatArray, Queries


class Scorer(Protocol):
    """Scores answers to questions: numpy in, numpy out, float32, higher is better.

    The same question gets the same scores alone and in a block, from `score_all` and from `score`.
    """

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity as the answer of each query; shape (queries, entities), no NaN."""
        ...

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score only the candidates of each query; shape (candidates,), in the order of `candidates.ids`."""
        ...
