"""Questions about entities that the graph has never seen: their texts are all there is to go by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from cascader.cascade import Cascade, Tier
from cascader.errors import DataError
from cascader.graph import BoolArray, Candidates, Entity, FloatArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import Embedding, directed
from cascader.scoring.scorer import Scorer

#: A new entity stands where its neighbors by text stand, the nearest counting most.
_NEIGHBORS = 10
_TEMPERATURE = 0.05


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
    of_text = tiers["dual"].about_new(entities, kg)
    is_trained = kg.degrees() > 0

    def scorer(name: str) -> Scorer:
        if name == "dual":
            return of_text.scorer
        model = tiers[name]
        return (
            model.about_new(entities) if name == "cross" else NeighborEmbedding.of(model, of_text.nearness, is_trained)
        )

    later: list[Tier] = [replace(tier, scorer=scorer(tier.name)) for tier in cascade.tiers]
    return Cascade(scorer(cascade.name), tuple(later), name=cascade.name)


class NeighborEmbedding:
    """An embedding, asked about entities that it has no vectors for."""

    def __init__(self, model: Embedding, vectors: torch.Tensor) -> None:
        self.name = model.name
        self._model, self._vectors = model, vectors  # (new, entity width)

    @classmethod
    def of(cls, model: Embedding, nearness: FloatArray, is_trained: BoolArray) -> "NeighborEmbedding":
        """Each vector is the mean of the nearest ones that were trained; `nearness` is (new, entities)."""
        likely = np.where(is_trained, nearness, -np.inf)
        order = np.argsort(-likely, axis=1, kind="stable")[:, : min(_NEIGHBORS, int(is_trained.sum()))]
        weights = softmax(np.take_along_axis(likely, order, axis=1) / _TEMPERATURE, axis=1)  # (new, neighbors)
        neighbors = model.entities_[torch.from_numpy(order)]  # (new, neighbors, entity width)
        return cls(model, (torch.from_numpy(weights.astype(np.float32))[..., None] * neighbors).sum(dim=1))

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        model = self._model
        with torch.inference_mode():
            anchors = self._vectors[torch.from_numpy(queries.anchors.astype(np.int64))]
            relations = model.relations_[torch.from_numpy(directed(queries, len(model.relations_) // 2))]
            return model.similarity(model.translate(anchors, relations), model.entities_).numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]
