"""Find entities by a part of their name, and what can be asked about them."""

import numpy as np
from scipy.sparse import csr_array

from cascader.graph import FloatArray, IntArray, KnowledgeGraph, Relation, Side
from cascader.graph.names import fold

#: With fewer than these, close spellings are looked for too.
_FEW = 3


class EntitySearch:
    """Looks for a text in all names and ids, in any case and spacing.

    >>> search = EntitySearch(KnowledgeGraph.from_triples([("big apple", "r", "apple"), ("pineapple", "r", "apply")]))
    >>> search.find("APPL")
    [1, 3, 0, 2]
    """

    def __init__(self, kg: KnowledgeGraph) -> None:
        self._kg = kg
        self._texts = [(fold(entity.name), fold(entity.id)) for entity in kg.entities]
        self._degrees = kg.degrees(("train", "valid", "test")).tolist()

    def find(self, text: str) -> list[int]:
        """Those that start with the text first, then those with a word that does, then those that hold it.

        Among equals, who has most facts comes first. Where few are found, close spellings follow.
        """
        wanted = fold(text)
        nearness = {i: near for i, of in enumerate(self._texts) if (near := _nearness(wanted, of)) is not None}
        found = sorted(nearness, key=lambda i: (nearness[i], -self._degrees[i]))
        if len(found) < _FEW:
            found += [i for i in self._kg.closest_entities(text) if i not in nearness]
        return found


def _nearness(wanted: str, texts: tuple[str, ...]) -> int | None:
    """0 for the very same, and more the further inside it stands; None where it does not."""
    if not any(wanted in text for text in texts):
        return None
    if wanted in texts:
        return 0
    if any(text.startswith(wanted) for text in texts):
        return 1
    return 2 if any(f" {wanted}" in text for text in texts) else 3


class AskableRelations:
    """Which relations make sense for an entity: those it has facts of, then those that similar entities have."""

    def __init__(self, kg: KnowledgeGraph) -> None:
        self._kg = kg
        triples, count = kg.triples(), len(kg.relations)
        anchors = np.concatenate([triples[:, 0], triples[:, 2]])
        slots = np.concatenate([triples[:, 1], triples[:, 1] + count])  # asked for tails, then for heads
        shape = len(kg.entities), 2 * count
        self._facts = csr_array((np.ones(len(anchors)), (anchors, slots)), shape=shape)  # sums up what is there twice
        self._has = (self._facts > 0).astype(np.float64)

    def of(self, entity: int) -> list[tuple[Relation, Side, int, float]]:
        """Every relation and the side that is asked for, with the entity's facts and the share of similar entities."""
        facts = self._facts[[entity]].toarray()[0].astype(int)
        shares = self._shares(entity)
        return [(*self._slot(slot), int(facts[slot]), float(shares[slot])) for slot in _order(facts, shares)]

    def _shares(self, entity: int) -> FloatArray:
        """The share of entities that have such facts, who has more in common counting more; shape (slots,)."""
        common = self._has @ self._has[[entity]].toarray()[0]  # (entities,)
        common[entity] = 0
        if not common.any():  # an entity without facts is like all others
            common[:] = 1
        return (common @ self._has) / common.sum()

    def _slot(self, slot: int) -> tuple[Relation, Side]:
        place, backwards = slot % len(self._kg.relations), slot >= len(self._kg.relations)
        return self._kg.relations[place], "head" if backwards else "tail"


def _order(facts: IntArray, shares: FloatArray) -> list[int]:
    order: list[int] = np.lexsort((-shares, -facts)).tolist()
    return order


def example_questions(kg: KnowledgeGraph, count: int = 3) -> list[tuple[int, int]]:
    """Entities and relations to start with: of the commonest relations, who has most facts; no entity twice."""
    degrees = kg.degrees()
    found: dict[int, int] = {}
    for relation in np.argsort(-np.bincount(kg.train[:, 1], minlength=len(kg.relations)), kind="stable").tolist():
        heads = np.setdiff1d(kg.train[kg.train[:, 1] == relation, 0], list(found))
        if len(heads) and len(found) < count:
            found[int(heads[degrees[heads].argmax()])] = relation
    return list(found.items())
