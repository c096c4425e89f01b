"""The interface of everything that scores answers, models, sums and cascades, and of those that can say why."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cascader.graph import Candidates, FloatArray, KnownAnswers, Queries


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


@dataclass(frozen=True, eq=False)
class RejectingScorer:
    """Scores as another does, and knows which answers people have rejected: the hardest negatives there are."""

    scorer: Scorer
    rejected: KnownAnswers

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        return self.scorer.score_all(queries)

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.scorer.score(queries, candidates)


def rejected_answers(scorer: Scorer, queries: Queries) -> Candidates:
    """Return the answers to each query that people have rejected, as far as a scorer knows them."""
    return scorer.rejected.of(queries) if isinstance(scorer, RejectingScorer) else Candidates.empty(len(queries))


@dataclass(frozen=True)
class Reason:
    """One thing that speaks for an answer or against it, in words that a curator understands.

    >>> Reason("most drugs that treat pain also treat fever", facts=((0, 1, 2),), strength=0.8).speaks_for
    True
    """

    text: str  # a clause that could follow "because"
    facts: tuple[tuple[int, int, int], ...] = ()  # the triples that it rests on, as indices; the graph has them all
    strength: float = 0.0  # comparable among the reasons of one tier: a confidence, a similarity, log-odds
    speaks_for: bool = True


@runtime_checkable
class Explains(Protocol):
    """A scorer that can say why: for one question and one entity, its reasons, strongest first."""

    def explain(self, question: Queries, answer: int) -> list[Reason]:
        """Say what speaks for an entity as the answer to a question (a block of one query), and what against it."""
        ...


def reasons_of(scorer: Scorer, question: Queries, answer: int) -> list[Reason]:
    """Ask a scorer for its reasons; most know no more than a score, and give none."""
    return scorer.explain(question, answer) if isinstance(scorer, Explains) else []
