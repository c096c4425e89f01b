"""Questions about entities that the graph has never seen: their texts are all there is to go by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cascader.cascade import Cascade, Tier
from cascader.errors import DataError
from cascader.graph import Entity, KnowledgeGraph
from cascader.scoring.scorer import Scorer


def parse_entity(text: str) -> Entity:
    """A new entity from "name: description", or from a name alone.

    >>> parse_entity("zinc: a metal").description
    'a metal'
    """
    name, _, description = (part.strip() for part in text.partition(":"))
    if not name:
        raise DataError(f"{text!r} names no entity. Write it as: name: description")
    return Entity(f"new:{name}", name, description)


def about_new(cascade: Cascade, tiers: Mapping[str, Any], entities: Sequence[Entity], kg: KnowledgeGraph) -> Cascade:
    """The same cascade for questions whose anchors are new entities, by their places; its answers are the graph's.

    `tiers` are the models by name. Embeddings take the mean of the new entities' neighbors by text.
    """
    if "dual" not in tiers:
        raise DataError(
            "a new entity has nothing but its text, and this run has no dual encoder that could read it. Fit one with: "
            "cascader fit GRAPH --tiers kge,dual; the graph needs texts for that."
        )
    nearness = tiers["dual"].nearness(entities, kg)

    def scorer(name: str) -> Scorer:
        return tiers[name].for_new_entities(entities, kg, nearness)

    later: list[Tier] = [replace(tier, scorer=scorer(tier.name)) for tier in cascade.tiers]
    return Cascade(scorer(cascade.name), tuple(later), name=cascade.name)
