"""What people get: an entity as an answer, or a verdict on a triple."""

from dataclasses import dataclass
from typing import Any

from cascader.cascade import Trace
from cascader.graph import Entity, Relation, Side


@dataclass(frozen=True)
class Prediction:
    """An entity as the answer to a question.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> found = Prediction(aspirin, treats, "tail", pain, rank=1, probability=0.7, score=4.2, is_known=False, trace=())
    >>> found.name, found.triple
    ('pain', ('d1', 'r1', 's1'))
    """

    anchor: Entity
    relation: Relation
    side: Side  # that was asked for
    entity: Entity
    rank: int
    probability: float | None  # None: there was no valid to calibrate on
    score: float
    is_known: bool  # the graph has this triple already
    trace: tuple[Trace, ...]

    @property
    def id(self) -> str:
        """The entity's id."""
        return self.entity.id

    @property
    def name(self) -> str:
        """The entity's name."""
        return self.entity.name

    @property
    def triple(self) -> tuple[str, str, str]:
        """The triple that this answer completes, by ids."""
        head, tail = (self.anchor, self.entity) if self.side == "tail" else (self.entity, self.anchor)
        return head.id, self.relation.id, tail.id

    def why(self) -> list[str]:
        """A line for each tier, in their order."""
        return [trace.in_words() for trace in self.trace]

    def as_row(self) -> dict[str, Any]:
        """All of it but the reasons, as tables and JSON hold it."""
        head, relation, tail = self.triple
        return {
            "head": head,
            "relation": relation,
            "tail": tail,
            "side": self.side,
            "rank": self.rank,
            "name": self.name,
            "probability": self.probability,
            "score": self.score,
            "is_known": self.is_known,
            **{f"rank_after_{trace.tier}": trace.rank for trace in self.trace},
        }


@dataclass(frozen=True)
class Answered:
    """The answers to a question, and what they have cost."""

    predictions: list[Prediction]
    pairs: int  # that were asked for, whether they were read now or before
    complete: bool  # False: the time was up before all of them were read


@dataclass(frozen=True)
class Verdict:
    """Whether a triple is held for true.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> Verdict(aspirin, treats, pain, probability=0.7, is_true=True, is_known=False).triple
    ('d1', 'r1', 's1')
    """

    head: Entity
    relation: Relation
    tail: Entity
    probability: float  # the mean of both questions that the triple answers
    is_true: bool
    is_known: bool  # the graph has it already

    @property
    def triple(self) -> tuple[str, str, str]:
        """The triple by ids."""
        return self.head.id, self.relation.id, self.tail.id

    def as_row(self) -> dict[str, Any]:
        """All of it, as tables and JSON hold it."""
        head, relation, tail = self.triple
        values = {"probability": self.probability, "is_true": self.is_true, "is_known": self.is_known}
        return {"head": head, "relation": relation, "tail": tail, **values}
