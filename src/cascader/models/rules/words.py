"""Rules in words: the facts that a proposal rests on, and how often the rule was right."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cascader.graph import IntArray, KnowledgeGraph
from cascader.models.rules.application import AppliedRules, Walker
from cascader.models.rules.facts import Facts
from cascader.models.rules.tables import NONE
from cascader.scoring.scorer import Reason
from cascader.wording import counted

Fact = tuple[int, int, int]
#: Longer names are cut, so that a reason stays a sentence.
_LONGEST_NAME = 80
#: By band.
_AMONG = (" with many answers", " with few answers", "")


class Explainer:
    """Says why rules propose an answer."""

    def __init__(self, applied: AppliedRules, kg: KnowledgeGraph) -> None:
        self.applied, self.kg = applied, kg
        self.facts = applied.facts

    def reasons(self, target: int, anchor: int, answer: int) -> list[Reason]:
        """The surest rules that propose an answer, and facts of which each has one example; the surest first."""
        proposals = [
            *self._by_chains(target, anchor, answer),
            *self._by_features_of_anchor(target, anchor, answer),
            *self._by_features_of_answer(target, anchor, answer),
        ]
        return sorted(proposals, key=lambda reason: -reason.strength)[: self.applied.settings.best]

    def _by_chains(self, target: int, anchor: int, answer: int) -> Iterator[Reason]:
        """The surest chains from the anchor to the answer, at most as many as are joined."""
        chains = self.applied.chains.of(target)
        confidences = chains.confidences(self.applied.settings.prior_count).tolist()
        walker = Walker(self.facts, np.array([anchor]))
        found = 0
        for row, path in enumerate(chains.path_tuples()):
            band = int(chains.bands[row])
            if answer in walker.cells(path, band):
                case = Case(float(chains.supports[row]), float(chains.bodies[row]), confidences[row])
                yield self._chain(target, path, anchor, answer, case, _AMONG[band])
                found += 1
            if found == self.applied.settings.best:
                return

    def _chain(self, target: int, path: tuple[int, ...], anchor: int, answer: int, case: "Case", among: str) -> Reason:
        relation = self._relation(target)
        if not path:
            return Reason(f"'{relation}' links an entity with itself in {case}", strength=case.confidence)
        stops = stops_between(self.facts, anchor, answer, path)
        facts = tuple(self._fact(*step) for step in zip(stops, path, stops[1:], strict=False))
        text = f"{self._said(facts)} (in {case.of('such case')}{among}, '{relation}' holds, too)"
        return Reason(text, facts, case.confidence)

    def _by_features_of_anchor(self, target: int, anchor: int, answer: int) -> Iterator[Reason]:
        constants = self.applied.constants
        hits = constants.by_features_of_anchors(target, np.array([anchor]))
        hits = hits[hits.cells == answer]
        for rule, confidence in zip(hits.rules.tolist(), hits.confidences.tolist(), strict=True):
            case = Case(float(constants.rules.supports[rule]), float(constants.rules.bodies[rule]), confidence)
            fact = self._feature(rule, anchor, not_=answer)
            like_it = f"{case} {self._condition(rule)}"
            text = f"{self._said([fact])} (in {like_it}, {self._entity(answer)} is among the answers)"
            yield Reason(text, (fact,), confidence)

    def _by_features_of_answer(self, target: int, anchor: int, answer: int) -> Iterator[Reason]:
        constants = self.applied.constants
        hits = constants.by_features_of_answers(target, np.array([anchor]))
        hits = hits[hits.cells == answer]
        for rule, confidence in zip(hits.rules.tolist(), hits.confidences.tolist(), strict=True):
            case = Case(float(constants.rules.supports[rule]), float(constants.rules.reaches[rule]), confidence)
            fact = self._feature(rule, answer, not_=anchor)
            like_it = f"{case} {self._condition(rule)}"
            text = f"{self._said([fact])} (in {like_it}, it is an answer for {self._entity(anchor)})"
            yield Reason(text, (fact,), confidence)

    def _feature(self, rule: int, entity: int, not_: int) -> Fact:
        """The fact by which an entity has the feature of a rule, never the one in question."""
        rules = self.applied.constants.rules
        relation, other = int(rules.relations[rule]), int(rules.entities[rule])
        if other == NONE:
            is_asked = relation == rules.targets[rule]
            others = neighbors(self.facts, entity, relation)
            other = next(int(other) for other in others if not is_asked or other != not_)
        return self._fact(entity, relation, other)

    def _condition(self, rule: int) -> str:
        """What the cases of a rule have in common: this very fact, or one of its relation with any other entity."""
        rules = self.applied.constants.rules
        is_any = rules.entities[rule] == NONE
        return f"with any such '{self._relation(int(rules.relations[rule]))}'" if is_any else "where that is so"

    def _fact(self, source: int, relation: int, target: int) -> Fact:
        """An edge as a triple of the graph."""
        inverse, plain = divmod(relation, self.facts.relation_count)
        return (target, plain, source) if inverse else (source, plain, target)

    def _said(self, facts: "tuple[Fact, ...] | list[Fact]") -> str:
        return ", and ".join(f"{self._entity(h)} {self._relation(r)} {self._entity(t)}" for h, r, t in facts)

    def _entity(self, entity: int) -> str:
        return in_one_line(self.kg.entities[entity].name)

    def _relation(self, relation: int) -> str:
        return in_one_line(self.kg.relations[relation % self.facts.relation_count].name)


class Case(NamedTuple):
    """How often a rule was right, among the cases that were looked at."""

    support: float
    body: float
    confidence: float

    def __str__(self) -> str:
        return self.of("case")

    def of(self, noun: str) -> str:
        """The share of the cases, by what they are called."""
        cases = max(round(self.body), round(self.support), 1)
        share = round(100 * min(self.support / cases, 1))
        return f"{share or 'under 1'} % of {counted(cases, noun)}"


def neighbors(facts: Facts, entity: int, relation: int) -> IntArray:
    """The entities that a directed relation leads to."""
    links = facts.links(relation)
    return links.indices[links.indptr[entity] : links.indptr[entity + 1]]


def stops_between(facts: Facts, anchor: int, answer: int, path: tuple[int, ...]) -> list[int]:
    """The entities of one way along a path, from the anchor to the answer, no entity twice."""
    if len(path) == 1:
        return [anchor, answer]
    before_answer = neighbors(facts, answer, facts.inverse(path[-1]))
    if len(path) == 2:
        middle = np.intersect1d(neighbors(facts, anchor, path[0]), before_answer)
        return [anchor, int(middle[~np.isin(middle, [anchor, answer])][0]), answer]
    for first in neighbors(facts, anchor, path[0]).tolist():
        second = np.intersect1d(neighbors(facts, first, path[1]), before_answer)
        second = second[~np.isin(second, [anchor, first, answer])]
        if first != answer and len(second):
            return [anchor, first, int(second[0]), answer]
    raise AssertionError("a chain that proposes an answer has a way to it")


def in_one_line(name: str) -> str:
    """A name without line breaks and control characters, cut if it is long.

    >>> in_one_line(f"two{chr(10)}lines")
    'two lines'
    """
    words = "".join(letter if letter.isprintable() else " " for letter in name).split()
    line = " ".join(words)
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"
