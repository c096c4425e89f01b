"""The work list: every missing link that a run proposes, once, with the evidence of both questions that it answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascader.cascade import Deadline
from cascader.display import progress
from cascader.errors import DataError
from cascader.graph import Entity, FloatArray, KnowledgeGraph, Queries, Relation, Side
from cascader.runs.prediction import Prediction, Predictions, percent
from cascader.runs.predictor import Predictor
from cascader.runs.questions import every_question
from cascader.runs.reasons import TierReason, in_one_line

_SIDES: tuple[Side, ...] = ("tail", "head")
#: Questions that are asked in one step, so that others get their turn in between.
_AT_ONCE = 128
#: A probability of 0 or 1 would leave the other question nothing to say.
_LEAST = 1e-6
#: The columns of a table of links.
LINK_COLUMNS = ("head", "relation", "tail", "head_name", "relation_name", "tail_name", "probability", "reason")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Link:
    """A link that a run proposes.

    >>> aspirin, treats, pain = Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")
    >>> found = Prediction(aspirin, treats, "tail", pain, rank=1, probability=0.7, score=4.2, is_known=False, trace=())
    >>> link = Link(0.6, found)
    >>> link, link.triple
    (Link(aspirin treats pain, 60.0 %), ('d1', 'r1', 's1'))
    """

    probability: float | None  # of its two questions together; None: there is no valid split to calibrate on
    found: Prediction  # as the answer to that of its two questions which has more to say for it

    def __repr__(self) -> str:
        return f"Link({self}{'' if self.probability is None else f', {percent(self.probability)}'})"

    def __str__(self) -> str:
        return in_one_line(f"{self.head.name} {self.relation.name} {self.tail.name}")

    @property
    def head(self) -> Entity:
        """The head."""
        return self.found.anchor if self.found.side == "tail" else self.found.entity

    @property
    def relation(self) -> Relation:
        """The relation."""
        return self.found.relation

    @property
    def tail(self) -> Entity:
        """The tail."""
        return self.found.entity if self.found.side == "tail" else self.found.anchor

    @property
    def triple(self) -> Key:
        """The link by ids."""
        return self.found.triple

    @property
    def reasons(self) -> tuple[TierReason, ...]:
        """Why it is proposed; the tiers are asked when this is first read."""
        return self.found.reasons

    def as_row(self) -> dict[str, Any]:
        """Return it as one row of a table, with the strongest reason in a few words."""
        names = (self.head.name, self.relation.name, self.tail.name)
        values = (*self.triple, *names, self.probability, self.found.brief_reason())
        return dict(zip(LINK_COLUMNS, values, strict=True))


class WorkList:
    """Asks every question that train has an answer to, and gathers the answers as links."""

    def __init__(
        self,
        predictor: Predictor,
        relation: str | None = None,
        min_probability: float = 0.0,
        top: int = 10,
        deadline: Deadline | None = None,
    ) -> None:
        self.predictor, self._least, self._top, self._deadline = predictor, min_probability, top, deadline
        self.questions = questions_about(predictor.kg, relation)
        self.done = 0  #: the number of questions that were asked
        self.links: list[Link] = []  #: the most probable first, once all steps are done
        self._found: dict[Key, dict[Side, Prediction]] = {}

    def made(self) -> list[Link]:
        """Take all steps, and return the links."""
        with progress("asking every question", total=len(self.questions), unit="questions") as advance:
            before = 0
            for _ in self.steps():
                advance(self.done - before)
                before = self.done
        return self.links

    def blocks(self) -> Iterator[Queries]:
        """Yield the questions in the blocks in which they are scored."""
        for block in self.questions.blocks(_AT_ONCE):
            yield from self.predictor.blocks(block)

    def steps(self) -> Iterator[None]:
        """Make the list in steps of some questions each; `links` has it after the last."""
        for block in self.questions.blocks(_AT_ONCE):
            for answers in self._answers(block):
                for found in answers:
                    self._found.setdefault(found.triple, {})[found.side] = found
            self.done += len(block)
            yield
        sides: dict[Side, dict[Key, float]] = {}
        if self.predictor.calibration is not None:
            for side in _SIDES:
                sides[side] = {}
                yield from self._ask_other_side(side, sides[side])
        links = [Link(_together(key, found, sides), _better(found)) for key, found in self._found.items()]
        kept = [link for link in links if link.probability is None or link.probability >= self._least]
        self.links = sorted(kept, key=_order)
        self._found = {}

    def _answers(self, block: Queries) -> Iterator[Predictions]:
        # The mean of two log-odds is no higher than the higher one, so what is less probable on both sides can go.
        return self.predictor.answer(block, top=self._top, min_probability=self._least, deadline=self._deadline)

    def _ask_other_side(self, side: Side, probabilities: dict[Key, float]) -> Iterator[None]:
        """Ask how probable links are that were found from the other side only.

        A question that train has no answer to is left out: nothing is known of how probable its answers are.
        """
        kg = self.predictor.kg
        missing = [key for key, found in self._found.items() if side not in found]
        rows = [(kg.entity_index(h), kg.relation_index(r), kg.entity_index(t)) for h, r, t in missing]
        queries = Queries.from_triples(np.array(rows, dtype=np.int32).reshape(-1, 3), side)
        counts = len(kg.entities), len(kg.relations)
        asked = np.flatnonzero(np.isin(queries.keys(*counts), self.questions.keys(*counts)))
        order = asked[np.argsort(queries.anchors[asked], kind="stable")]  # equal questions are asked in one step
        for start in range(0, len(order), _AT_ONCE):
            chosen = order[start : start + _AT_ONCE]
            found: FloatArray = self.predictor.one_sided(queries[chosen], self.predictor.facts)
            probabilities.update(zip([missing[i] for i in chosen], found.tolist(), strict=True))
            yield


def link_of(predictor: Predictor, triple: Key) -> Link:
    """Return one link, by ids that the graph has, with what both of its questions say of it."""
    head, relation, tail = triple
    asked: list[tuple[Side, str, str]] = [("tail", head, tail), ("head", tail, head)]
    found: dict[Side, Prediction] = {}
    for side, anchor, answer in asked:
        answers = predictor.predict(anchor, relation, side, top=len(predictor.kg.entities))
        place = next((i for i, each in enumerate(answers) if each.id == answer), None)
        if place is not None:
            found[side] = answers[place]
    if not found:
        raise DataError(f"({', '.join(triple)}) is known or rejected, or links a thing to itself: it is not proposed.")
    return Link(_together(triple, found, {}), _better(found))


def questions_about(kg: KnowledgeGraph, relation: str | None) -> Queries:
    """Return every question that train has an answer to, or those about one relation."""
    questions = every_question(kg)
    return questions if relation is None else questions[questions.relations == kg.relation_index(relation)]


def joint_probability(of_sides: Sequence[float]) -> float:
    """Return what the questions that a link answers say of it together: the mean of their log-odds.

    Each weighs the same, and one that rules a link out counts: a plain mean would leave it at a half.

    >>> round(joint_probability([0.5, 0.5]), 3), round(joint_probability([0.9, 0.001]), 3)
    (0.5, 0.087)
    """
    clipped = np.clip(of_sides, _LEAST, 1 - _LEAST)
    return float(1 / (1 + np.exp(-np.mean(np.log(clipped / (1 - clipped))))))


def _together(key: Key, found: Mapping[Side, Prediction], others: Mapping[Side, Mapping[Key, float]]) -> float | None:
    both = [found[side].probability if side in found else others.get(side, {}).get(key) for side in _SIDES]
    given = [each for each in both if each is not None]
    return joint_probability(given) if given else None


def _better(found: Mapping[Side, Prediction]) -> Prediction:
    """The answer of the two that is more probable, or ranks higher."""
    return max(found.values(), key=lambda each: (each.probability or 0.0, -each.rank))


def _order(link: Link) -> tuple[float, int, Key]:
    return -(link.probability or 0.0), link.found.rank, link.triple
