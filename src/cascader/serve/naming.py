"""Entities and relations by what clients call them; where that is nothing, names that they may have meant."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from cascader.errors import UnknownNameError
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.graph.names import fold


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

    def entity(self, text: str) -> int:
        """The index of the entity with this id or name."""
        return _resolved(self._kg.entity_index, text, lambda: self._entities)

    def relation(self, text: str) -> int:
        """The index of the relation with this id or name."""
        return _resolved(self._kg.relation_index, text, lambda: self._relations)

    def triple(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        """The indices of all three."""
        return self.entity(head), self.relation(relation), self.entity(tail)

    @cached_property
    def _entities(self) -> dict[str, str]:
        return _speaking(self._kg.entities)

    @cached_property
    def _relations(self) -> dict[str, str]:
        return _speaking(self._kg.relations)


def _resolved(index: Callable[[str], int], text: str, speaking: Callable[[], dict[str, str]]) -> int:
    try:
        return index(text)
    except UnknownNameError as error:
        raise UnknownNameError(str(error), [speaking().get(id_, id_) for id_ in error.candidates]) from None


def _speaking(things: Sequence[Entity] | Sequence[Relation]) -> dict[str, str]:
    """By id, the name of whatever shares it with nobody."""
    counts = Counter(folded for thing in things for folded in {fold(thing.name), fold(thing.id)})
    return {thing.id: thing.name for thing in things if counts[fold(thing.name)] == 1}
