"""Reasons: what speaks for an answer or against it, in words, and the facts that say so."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cascader.graph import Queries
from cascader.scoring.scorer import Scorer


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
