"""The interface of everything that scores answers: models, sums and cascades."""

from typing import Protocol

from cascader.graph import Candidates, FloatArray, Queries


class Scorer(Protocol):
    """Scores answers to questions: numpy in, numpy out, float32, higher is better.

    A question gets the same scores alone and in a block, from `score_all` and from `score`. Your own class needs only
    these two methods and no base class, and can then be a tier like any other:

    >>> import numpy as np
    >>> from cascader import Cascade, KnowledgeGraph
    >>> class ByName:
    ...     "Prefers entities whose names come early in the alphabet."
    ...
    ...     def __init__(self, kg):
    ...         self.scores = np.array([-ord(entity.name[0]) for entity in kg.entities], dtype=np.float32)
    ...
    ...     def score_all(self, queries):
    ...         return np.tile(self.scores, (len(queries), 1))
    ...
    ...     def score(self, queries, candidates):
    ...         return self.scores[candidates.ids]
    >>> kg = KnowledgeGraph.from_triples([("cat", "is a", "animal"), ("bee", "is a", "animal")])
    >>> Cascade(ByName(kg)).score_all(kg.query("cat", "is a")).tolist()  # cat, animal, bee
    [[-99.0, -97.0, -98.0]]
    """

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity as the answer to each query; shape (queries, entities), no NaN."""
        ...

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score only the candidates of each query; shape (candidates,), in the order of `candidates.ids`."""
        ...


def reads_pairs(scorer: Scorer) -> bool:
    """Return whether a scorer reads each candidate together with its question, so that it can score only a few."""
    return bool(getattr(scorer, "reads_pairs", False))
