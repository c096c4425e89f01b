"""Answer questions about entities that the graph does not have, from their texts alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from cascader.cascade import Cascade
from cascader.errors import DataError
from cascader.graph import Entity, FloatArray, KnowledgeGraph
from cascader.models.model import Model
from cascader.scoring import Scorer


@runtime_checkable
class ReadsNewTexts(Protocol):
    """A model that can compare new texts with those of the graph."""

    def nearness(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> FloatArray:
        """Compute the similarity of each new entity's text to that of every entity; shape (new, entities)."""
        ...


def parse_entity(text: str) -> Entity:
    """Parse a new entity from "name: description", or from a name alone.

    >>> parse_entity("zinc: a metal").description
    'a metal'
    """
    name, _, description = (part.strip() for part in text.partition(":"))
    if not name:
        raise DataError(f"{text!r} does not name an entity. Write it as: name: description")
    return Entity(f"new:{name}", name, description)


def can_read_new(tiers: Mapping[str, Model]) -> bool:
    """Return whether any of the tiers can read the text of a new entity."""
    return any(isinstance(model, ReadsNewTexts) for model in tiers.values())


def for_new_entities(
    cascade: Cascade, tiers: Mapping[str, Model], entities: Sequence[Entity], kg: KnowledgeGraph
) -> Cascade:
    """Adapt a cascade to questions whose anchors are new entities, by position; its answers are entities of the graph.

    `tiers` are the models by name. Embeddings use the mean vector of the entities with the most similar texts.
    """
    reader = next((model for model in tiers.values() if isinstance(model, ReadsNewTexts)), None)
    if reader is None:
        raise DataError(
            "a new entity has only its text, and this run has no dual encoder to read it. Fit one with: "
            "cascader fit GRAPH --tiers kge,dual; the graph needs texts for that."
        )
    nearness = reader.nearness(entities, kg)

    def scorer(name: str) -> Scorer:
        return tiers[name].for_new_entities(entities, kg, nearness)

    later = tuple(replace(tier, scorer=scorer(tier.name)) for tier in cascade.tiers)
    return Cascade(scorer(cascade.name), later, name=cascade.name)
