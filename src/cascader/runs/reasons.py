"""Reasons for people: why an answer stands where it does, in words, with the facts that say so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cascader.cascade import Answer
from cascader.graph import Entity, KnowledgeGraph, Queries, Relation
from cascader.scoring import Reason, Scorer, reasons_of

#: Kinds of models that only ever speak for an answer. They are heard first, in this order, and even if they had no
#: weight in the ranking: a rule and a similar entity are evidence that people can check.
_EVIDENCE = ("rules", "similarity")
#: How many reasons are given at most: of each of these, of any other tier, and about candidates that rank below.
_MOST_EVIDENCE, _MOST_OTHERS, _MOST_RIVALS = 2, 1, 2
_MOST_WORDS = 6
#: A rule that is right less often than this is evidence among others, but no reason.
_LEAST_CONFIDENCE = 0.1


class Fact(NamedTuple):
    """A triple of the graph that a reason rests on.

    >>> str(Fact(Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain")))
    'aspirin treats pain'
    """

    head: Entity
    relation: Relation
    tail: Entity

    def __str__(self) -> str:
        return in_one_line(f"{self.head.name} {self.relation.name} {self.tail.name}")


@dataclass(frozen=True)
class TierReason:
    """One thing that speaks for an answer, against it, or against a candidate that ranks below it.

    >>> TierReason("rules", "most of what eases pain eases fever", strength=0.8, share=0.31).in_words()
    'rules: most of what eases pain eases fever'
    """

    tier: str  # that says so; several, separated by commas, if they say the same
    text: str  # a clause that could follow "because"
    facts: tuple[Fact, ...] = ()
    strength: float = 0.0  # comparable among the reasons of one tier: a confidence, a similarity, log-odds
    speaks_for: bool = True
    share: float = 0.0  # of the tier in the answer's final score; 0: evidence that the ranking did not use
    rival: Entity | None = None  # the candidate below that it is about; None: the answer

    def in_words(self) -> str:
        """Say it in one line, with who says it and of what."""
        says = self.tier if self.share > 0 else f"{self.tier}, without weight here"
        if self.rival is not None:
            return f"{says}, against {in_one_line(self.rival.name)} below: {self.text}"
        return f"{says}: {self.text}" if self.speaks_for else f"{says}, against it: {self.text}"

    def untold(self) -> list[str]:
        """Return the facts in words that its text does not say."""
        return [words for fact in self.facts if (words := str(fact)) not in self.text]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object; entities and relations have their ids and names."""
        return {
            "tier": self.tier,
            "text": self.text,
            "facts": [{end: _named(thing) for end, thing in fact._asdict().items()} for fact in self.facts],
            "strength": self.strength,
            "speaks_for": self.speaks_for,
            "share": self.share,
            "rival": None if self.rival is None else _named(self.rival),
        }


@runtime_checkable
class ReadsTexts(Protocol):
    """A model that reads the texts of entities, as far as it can."""

    def as_read(self, text: str) -> str:
        """Return the part of a text that it reads."""
        ...


@dataclass(frozen=True, eq=False)
class Explainer:
    """Asks tiers why an answer stands where it does, and puts what they say in the order that people want to hear."""

    kg: KnowledgeGraph
    tiers: Mapping[str, Scorer]  # by name; those that are not in the cascade can still give evidence
    question: Queries  # one query, with what was known when it was answered
    anchor: Entity
    answer: Answer

    def reasons(self) -> tuple[TierReason, ...]:
        """Return what speaks for the answer, then what speaks against it, the texts, and what speaks against rivals."""
        others = self._others(self.answer.entity)
        against = [reason for reason in others if not reason.speaks_for]
        rivals = self._against_rivals(more_than=max((reason.strength for reason in against), default=0.0))
        speaking_for = [reason for reason in others if reason.speaks_for]
        return (*self._evidence(), *speaking_for, *against, *self._of_texts(), *rivals)

    def _evidence(self) -> Iterator[TierReason]:
        """The surest rules, and the most similar entities."""
        for kind in _EVIDENCE:
            for tier, scorer in self.tiers.items():
                if _kind_of(scorer) == kind:
                    given = reasons_of(scorer, self.question, self.answer.entity)
                    sure = [reason for reason in given if kind != "rules" or reason.strength >= _LEAST_CONFIDENCE]
                    yield from (self._told(tier, reason) for reason in sure[:_MOST_EVIDENCE])

    def _of_texts(self) -> Iterator[TierReason]:
        """Which tiers have read the two texts, and which words these share."""
        readers = {tier: model for tier, model in self._counting.items() if isinstance(model, ReadsTexts)}
        if not readers:
            return
        words = self._shared_words(list(readers.values()))
        share = sum(self._shares[tier] for tier in readers)
        both = "have read both texts" if len(readers) > 1 else "has read both texts"
        text = f"{both}, which share: {', '.join(words[:_MOST_WORDS])}" if words else both
        yield TierReason(", ".join(readers), text, strength=float(len(words)), share=share)

    def _shared_words(self, readers: Sequence[ReadsTexts]) -> list[str]:
        # Where a tier reads texts, the libraries that this import loads are there already.
        from cascader.models.text.text_model import phrase_of, text_of
        from cascader.models.text.words import shared_words

        anchor, answer = (
            max((reader.as_read(text_of(entity)) for reader in readers), key=len)
            for entity in (self.anchor, self.kg.entities[self.answer.entity])
        )
        relation = self.kg.relations[int(self.question.relations[0])].name
        return shared_words(anchor, answer, without=phrase_of(relation, bool(self.question.predicts_tail[0])))

    def _against_rivals(self, more_than: float) -> list[TierReason]:
        """What speaks most against each of the next candidates, if it says more than what speaks against the answer."""
        found = []
        for rival in self.answer.runners_up:
            against = [reason for reason in self._others(rival) if not reason.speaks_for]
            strongest = max(against, key=lambda reason: reason.strength, default=None)
            if strongest is not None and strongest.strength > more_than:
                found.append(replace(strongest, rival=self.kg.entities[rival]))
        return found[:_MOST_RIVALS]

    # The tiers.

    def _others(self, entity: int) -> list[TierReason]:
        """What the tiers that count here, and are not heard anyway, say for an entity and against it."""
        found = []
        for tier, scorer in self._counting.items():
            if _kind_of(scorer) not in _EVIDENCE:
                reasons = reasons_of(scorer, self.question, entity)
                for_it, against_it = ([each for each in reasons if each.speaks_for is side] for side in (True, False))
                found += [self._told(tier, reason) for reason in (*for_it[:_MOST_OTHERS], *against_it[:_MOST_OTHERS])]
        return found

    @cached_property
    def _shares(self) -> dict[str, float]:
        return {trace.tier: trace.share for trace in self.answer.trace}

    @property
    def _counting(self) -> dict[str, Scorer]:
        """The tiers that had a say in the answer's score."""
        return {tier: scorer for tier, scorer in self.tiers.items() if self._shares.get(tier, 0.0) > 0}

    def _told(self, tier: str, reason: Reason) -> TierReason:
        entities, relations = self.kg.entities, self.kg.relations
        return TierReason(
            tier=tier,
            text=in_one_line(reason.text),
            facts=tuple(
                Fact(entities[head], relations[relation], entities[tail]) for head, relation, tail in reason.facts
            ),
            strength=reason.strength,
            speaks_for=reason.speaks_for,
            share=self._shares.get(tier, 0.0),
        )


def in_one_line(text: str) -> str:
    """Return a text without line breaks and control characters, which names may have.

    >>> in_one_line(f"aspirin{chr(10)}treats")
    'aspirin treats'
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _kind_of(scorer: Scorer) -> str:
    return str(getattr(scorer, "name", ""))


def _named(thing: Entity | Relation) -> dict[str, str]:
    return {"id": thing.id, "name": thing.name}
