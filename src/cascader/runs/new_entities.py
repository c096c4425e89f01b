"""Questions about entities that the graph has never seen: their texts are all there is to go by."""

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
    """A model that can tell how near new texts are to those of the graph."""

    def nearness(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> FloatArray:
        """The similarity of each new entity's text to every entity's; shape (new, entities)."""
        ...


def parse_entity(text: str) -> Entity:
    """A new entity from "name: description", or from a name alone.

    >>> parse_entity("zinc: a metal").description
    'a metal'
    """
    name, _, description = (part.strip() for part in text.partition(":"))
    if not name:
        raise DataError(f"{text!r} does not name an entity. Write it as: name: description")
    return Entity(f"new:{name}", name, description)


def can_read_new(tiers: Mapping[str, Model]) -> bool:
    """Whether one of the tiers can read the text of a new entity."""
    return any(isinstance(model, ReadsNewTexts) for model in tiers.values())


def for_new_entities(
    cascade: Cascade, tiers: Mapping[str, Model], entities: Sequence[Entity], kg: KnowledgeGraph
) -> Cascade:
    """The same cascade for questions whose anchors are new entities, by position; its answers are the graph's.

    `tiers` are the models by name. Embeddings take the mean of a new entity's neighbors by text.
    """
    reader = next((model for model in tiers.values() if isinstance(model, ReadsNewTexts)), None)
    if reader is None:
        raise DataError(
            "a new entity has nothing but its text, and this run has no dual encoder that could read it. Fit one with: "
            "cascader fit GRAPH --tiers kge,dual; the graph needs texts for that."
        )
    nearness = reader.nearness(entities, kg)

    def scorer(name: str) -> Scorer:
        return tiers[name].for_new_entities(entities, kg, nearness)

    later = tuple(replace(tier, scorer=scorer(tier.name)) for tier in cascade.tiers)
    return Cascade(scorer(cascade.name), later, name=cascade.name)
