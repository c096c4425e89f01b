"""Entities and relations by name: resolving what clients type, searching, and what can be asked about an entity."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from cascader.errors import UnknownNameError
from cascader.graph import Entity, FloatArray, IntArray, KnowledgeGraph, Relation, Side
from cascader.graph.names import CLOSEST, fold

_SIDES: tuple[Side, ...] = ("tail", "head")


class Names:
    """Resolves names of a graph, and suggests others in a form that resolves.

    >>> names = Names(KnowledgeGraph.from_triples([("aspirin", "treats", "fever")]))
    >>> names.entity("Aspirin"), names.relation("treats")
    (0, 0)
    >>> names.entity("aspirine")
    Traceback (most recent call last):
    cascader.errors.UnknownNameError: no entity is called 'aspirine' (of 2 entities). Closest: aspirin.
    """

    def __init__(self, kg: KnowledgeGraph) -> None:
        self._kg = kg

    def entity(self, text: str, closest: int = CLOSEST) -> int:
        """The index of the entity with this id or name; if there is none, the error suggests `closest` names."""
        return _resolve(self._kg.entity_index, self._kg.entities, text, closest)

    def relation(self, text: str, closest: int = CLOSEST) -> int:
        """The index of the relation with this id or name; if there is none, the error suggests `closest` names."""
        return _resolve(self._kg.relation_index, self._kg.relations, text, closest)

    def triple(self, head: str, relation: str, tail: str, closest: int = CLOSEST) -> tuple[int, int, int]:
        """The indices of a triple."""
        return self.entity(head, closest), self.relation(relation, closest), self.entity(tail, closest)


class _Index(Protocol):
    """Finds something by id or name."""

    def __call__(self, text: str, *, closest: int) -> int: ...


def _resolve(index: _Index, things: Sequence[Entity] | Sequence[Relation], text: str, closest: int) -> int:
    try:
        return index(text, closest=closest)
    except UnknownNameError as error:
        candidates = [_unique_name(index, things[index(id_, closest=0)]) for id_ in error.candidates]
        raise UnknownNameError(str(error), candidates) from None


def _unique_name(index: _Index, thing: Entity | Relation) -> str:
    """The name of a thing if nothing else goes by it, otherwise its id."""
    try:
        return thing.name if index(thing.name, closest=0) == index(thing.id, closest=0) else thing.id
    except UnknownNameError:
        return thing.id


class EntitySearch:
    """Searches all names and ids, ignoring case and spacing.

    >>> search = EntitySearch(KnowledgeGraph.from_triples([("big apple", "r", "apple"), ("pineapple", "r", "apply")]))
    >>> search.find("APPL")
    [1, 3, 0, 2]
    """

    def __init__(self, kg: KnowledgeGraph) -> None:
        self._kg = kg
        self._texts = [(fold(entity.name), fold(entity.id)) for entity in kg.entities]
        self._degrees = kg.degrees(("train", "valid", "test")).tolist()

    def find(self, text: str) -> list[int]:
        """The entities that start with the text, then those with a word that does, then those that contain it.

        Ties are broken by the number of facts. If nothing matches, close spellings are returned.
        """
        wanted = fold(text)
        nearness = {i: near for i, of in enumerate(self._texts) if (near := _nearness(wanted, of)) is not None}
        found = sorted(nearness, key=lambda i: (nearness[i], -self._degrees[i]))
        return found or self._kg.closest_entities(text)


def _nearness(wanted: str, texts: tuple[str, ...]) -> int | None:
    """0 for an exact match, more the deeper inside the match is, None if there is no match."""
    if not any(wanted in text for text in texts):
        return None
    if wanted in texts:
        return 0
    if any(text.startswith(wanted) for text in texts):
        return 1
    return 2 if any(f" {wanted}" in text for text in texts) else 3


class AskableRelations:
    """Which relations make sense for an entity: those that it has facts of, then those of similar entities."""

    def __init__(self, kg: KnowledgeGraph) -> None:
        self._kg = kg
        triples, count = kg.triples(), len(kg.relations)
        anchors = np.concatenate([triples[:, 0], triples[:, 2]])
        slots = np.concatenate([triples[:, 1], triples[:, 1] + count])  # tails asked for, then heads
        shape = len(kg.entities), 2 * count
        self._facts = csr_array((np.ones(len(anchors)), (anchors, slots)), shape=shape)  # duplicates are summed
        self._has = (self._facts > 0).astype(np.float64)

    def of(self, entity: int) -> list[tuple[Relation, Side, int, float]]:
        """Every relation and side to ask for, with the entity's facts and the share of similar entities with any."""
        facts = self._facts[[entity]].toarray()[0].astype(int)
        shares = self._shares(entity)
        return [(*self._slot(slot), int(facts[slot]), float(shares[slot])) for slot in _order(facts, shares)]

    def _shares(self, entity: int) -> FloatArray:
        """The share of entities that have such facts, weighted by what they have in common with it; shape (slots,)."""
        common = self._has @ self._has[[entity]].toarray()[0]  # (entities,)
        common[entity] = 0
        if not common.any():  # an entity without facts resembles all others equally
            common[:] = 1
        return (common @ self._has) / common.sum()

    def _slot(self, slot: int) -> tuple[Relation, Side]:
        place, backwards = slot % len(self._kg.relations), slot >= len(self._kg.relations)
        return self._kg.relations[place], "head" if backwards else "tail"


def _order(facts: IntArray, shares: FloatArray) -> list[int]:
    order: list[int] = np.lexsort((-shares, -facts)).tolist()
    return order


def example_questions(kg: KnowledgeGraph, count: int = 3) -> list[tuple[int, int, Side]]:
    """Questions to start with: for each of the most common relations, the entity with the most facts; none twice."""
    degrees, most_common = kg.degrees(), np.argsort(-np.bincount(kg.train[:, 1]), kind="stable").tolist()
    slots: list[tuple[int, Side]] = [(relation, side) for side in _SIDES for relation in most_common]
    found: dict[int, tuple[int, int, Side]] = {}
    for relation, side in slots * count:
        if len(found) == count:
            break
        anchors = np.unique(kg.train[kg.train[:, 1] == relation, 0 if side == "tail" else 2])
        left = np.setdiff1d(anchors, list(found))
        if len(left):
            entity = int(left[degrees[left].argmax()])
            found[entity] = entity, relation, side
    return list(found.values())
