"""Predictions, which are entities as answers, and verdicts on triples."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, overload

from cascader.cascade import Trace
from cascader.display import html_table
from cascader.graph import Entity, Relation, Side
from cascader.runs.reasons import TierReason

#: In a table, the first reason for an answer is cut to this length.
_BRIEF = 100
#: The columns of a table of predictions; after them, the rank after each tier.
PREDICTION_COLUMNS = ("head", "relation", "tail", "side", "rank", "name", "probability", "score", "is_known")


@dataclass(frozen=True)
class Prediction:
    """An entity as the answer to a question.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> found = Prediction(aspirin, treats, "tail", pain, rank=1, probability=0.7, score=4.2, is_known=False, trace=())
    >>> found
    Prediction(1. pain, 70.0 %)
    >>> found.triple
    ('d1', 'r1', 's1')
    """

    anchor: Entity
    relation: Relation
    side: Side  # the one asked for
    entity: Entity
    rank: int
    probability: float | None  # None: there is no valid split to calibrate on, or the entity is new
    score: float
    is_known: bool  # the graph has this triple already
    trace: tuple[Trace, ...]
    #: Asks the tiers for their reasons, which takes time; no reasons if there is nobody to ask.
    explain: Callable[[], tuple[TierReason, ...]] = field(default=tuple, compare=False, repr=False)

    def __repr__(self) -> str:
        probability = "" if self.probability is None else f", {percent(self.probability)}"
        return f"Prediction({self.rank}. {self.name}{probability}{', known' if self.is_known else ''})"

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

    @cached_property
    def reasons(self) -> tuple[TierReason, ...]:
        """Why: rules, similar entities, what else speaks for it and against it, texts, and what speaks against rivals.

        The tiers are asked when this is first read.
        """
        return self.explain()

    def why(self) -> list[str]:
        """Return the reasons in words, and then the rank after each tier and what that tier counts for."""
        return [*(reason.in_words() for reason in self.reasons), *(trace.in_words() for trace in self.trace)]

    def why_as_dict(self) -> dict[str, Any]:
        """Return the reasons and the trace as a JSON object."""
        return {
            "reasons": [reason.as_dict() for reason in self.reasons],
            "trace": [asdict(each) for each in self.trace],
        }

    def brief_reason(self) -> str:
        """Return the first thing that speaks for it in a few words; empty if no tier that counts says anything."""
        text = next((reason.text for reason in self.reasons if reason.speaks_for and reason.share > 0), "")
        if len(text) > _BRIEF:
            text = text.partition(" (")[0]  # how often a rule holds, which is the longer part
        return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1].rstrip()}…"

    def as_row(self) -> dict[str, Any]:
        """Return everything but the trace as one row of a table."""
        judged = (self.side, self.rank, self.name, self.probability, self.score, self.is_known)
        row = zip(PREDICTION_COLUMNS, (*self.triple, *judged), strict=True)
        return {**dict(row), **{f"rank_after_{trace.tier}": trace.rank for trace in self.trace}}


@dataclass(frozen=True, repr=False)
class Predictions(Sequence[Prediction]):
    """The answers to one question, best first, and what they cost.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> found = Prediction(aspirin, treats, "tail", pain, rank=1, probability=0.7, score=4.2, is_known=False, trace=())
    >>> Predictions((found,), pairs=5)
    [Prediction(1. pain, 70.0 %)]
    """

    predictions: tuple[Prediction, ...]
    pairs: int = 0  # requested, whether they were read now or came from a store
    complete: bool = True  # False: the deadline passed before all of them were read

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> "Predictions": ...
    def __getitem__(self, place: int | slice) -> "Prediction | Predictions":
        if isinstance(place, slice):
            return Predictions(self.predictions[place], self.pairs, self.complete)
        return self.predictions[place]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)

    def __len__(self) -> int:
        return len(self.predictions)

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.predictions))}]"

    def _repr_html_(self) -> str:
        tiers = [trace.tier for trace in self.predictions[0].trace] if self.predictions else []
        rows = [
            [
                str(found.rank),
                found.name + (" (known)" if found.is_known else ""),
                percent(found.probability),
                *(str(trace.rank) for trace in found.trace),
                found.brief_reason(),
            ]
            for found in self.predictions
        ]
        return html_table(["rank", "name", "probability", *(f"rank after {tier}" for tier in tiers), "why"], rows)


@dataclass(frozen=True)
class Verdict:
    """Whether a triple is judged to be true.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> found = Verdict(aspirin, treats, pain, probability=0.7, threshold=0.5, is_known=False)
    >>> found.triple, found.is_true, found.in_words()
    (('d1', 'r1', 's1'), True, 'true')
    >>> Verdict(aspirin, treats, pain, probability=0.2, threshold=0.5, is_known=True).in_words()
    'known, but doubted'
    """

    head: Entity
    relation: Relation
    tail: Entity
    probability: float  # among triples of which half are true, and the others look alike
    threshold: float  # from which it is judged to be true
    is_known: bool  # the graph has it already

    @property
    def is_true(self) -> bool:
        """Whether it is judged to be true, as if the graph did not have it."""
        return self.probability >= self.threshold

    @property
    def triple(self) -> tuple[str, str, str]:
        """The triple by ids."""
        return self.head.id, self.relation.id, self.tail.id

    def in_words(self) -> str:
        """Return the verdict in a few words."""
        if self.is_known:
            return "known" if self.is_true else "known, but doubted"
        return "true" if self.is_true else "false"

    def as_row(self) -> dict[str, Any]:
        """Return the verdict as one row of a table."""
        head, relation, tail = self.triple
        judged = {"probability": self.probability, "threshold": self.threshold, "is_true": self.is_true}
        return {"head": head, "relation": relation, "tail": tail, **judged, "is_known": self.is_known}


def percent(probability: float | None) -> str:
    """Format a probability as a percentage; anything below a tenth of a percent is shown as such."""
    if probability is None:
        return "–"
    return "< 0.1 %" if probability < 0.001 else f"{100 * probability:.1f} %"
