"""Answer questions about entities that the graph does not have, from their texts alone."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
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

    `tiers` are the models by name. Embeddings use the mean vector of the entities with the most similar texts. Tiers
    that can only judge by an entity's facts are left out; if no other can rank all entities, the reader of texts does.
    """
    reader = next((model for model in tiers.values() if isinstance(model, ReadsNewTexts)), None)
    if reader is None:
        raise DataError(
            "a new entity has only its text, and this run has no dual encoder to read it. Fit one with: "
            "cascader fit GRAPH --tiers kge,dual; the graph needs texts for that."
        )
    nearness = reader.nearness(entities, kg)
    views = _views({name: tiers[name] for name in cascade.scorers}, entities, kg, nearness)
    later = [replace(tier, scorer=views[tier.name]) for tier in cascade.tiers if tier.name in views]
    if cascade.name in views:
        return Cascade(views[cascade.name], tuple(later), name=cascade.name)
    if later and not later[0].reads_pairs:
        return Cascade(later[0].scorer, tuple(later[1:]), name=later[0].name)
    (name,) = (name for name, model in tiers.items() if model is reader)
    others = tuple(tier for tier in later if tier.name != name)
    return Cascade(tiers[name].for_new_entities(entities, kg, nearness), others, name=name)


def _views(
    tiers: Mapping[str, Model], entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray
) -> dict[str, Scorer]:
    """Adapt each tier; those that know nothing without facts, such as rules, are left out."""
    views = {}
    for name, model in tiers.items():
        with suppress(DataError):
            views[name] = model.for_new_entities(entities, kg, nearness)
    return views
