"""What the towers stand on: the vectors of texts."""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cascader.datasets.download import cache_folder
from cascader.graph import IntArray
from cascader.models.text.base_model import BaseModel
from cascader.models.text.split_encoder import FrozenLayers, States, join, run_layers
from cascader.models.text.texts import GraphTexts, Tokens
from cascader.models.text.vector_store import VectorStore


class Reader(Protocol):
    """Gives texts of a graph their vectors, each the mean of its tokens."""

    def entities(self, places: Tensor) -> Tensor:
        """Vectors of entities; shape (places, width)."""
        ...

    def relations(self, places: Tensor) -> Tensor:
        """Vectors of relations, those asked backwards behind the others; shape (places, width)."""
        ...

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Vectors of questions read as one text; shape (questions, width)."""
        ...


class TextEncoder(nn.Module):
    """Reads with a language model, of which only the upper `trainable_layers` are trained.

    What the layers below make of a text never changes, so it is computed once; with no tuned layer that is the vector
    itself, and it is kept on disk for all runs of this machine.
    """

    def __init__(self, base: BaseModel, texts: GraphTexts, trainable_layers: int) -> None:
        super().__init__()
        split = base.layer_count - trainable_layers
        self.base, self._lower = base, FrozenLayers(base, split)
        self.upper = base.layers[split:]
        for parameter in base.encoder.parameters():
            parameter.requires_grad_(False)
        for parameter in self.upper.parameters():
            parameter.requires_grad_(True)
        self._entities = self._read(texts.entities)
        self._relations = self._read(texts.relations)

    def entities(self, places: Tensor) -> Tensor:
        """Vectors of entities; shape (places, width)."""
        return self._vectors(self._entities, places)

    def relations(self, places: Tensor) -> Tensor:
        """Vectors of relations, those asked backwards behind the others; shape (places, width)."""
        return self._vectors(self._relations, places)

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Vectors of questions read as one text, the relation first; shape (questions, width)."""
        if len(self.upper) == 0:
            # No layer sees both parts: what is left is to lay one beside the other.
            return (self.relations(relations) + self.entities(anchors)) / 2
        return self._joined([(self._relations, relations.numpy()), (self._entities, anchors.numpy())])

    def of_texts(self, tokens: Tokens) -> Tensor:
        """Vectors of texts that the graph does not have; shape (texts, width)."""
        states = self._lower.read(tokens)
        return self._vectors(states, torch.arange(len(tokens))) if len(self.upper) else states.means()

    def _vectors(self, states: States, places: Tensor) -> Tensor:
        if len(self.upper) == 0:
            return states.rows[places]
        return self._joined([(states, places.numpy())])

    def _joined(self, parts: list[tuple[States, IntArray]]) -> Tensor:
        states, mask, _ = join(parts)
        states = run_layers(self.upper, states, mask)
        return (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def _read(self, tokens: Tokens) -> States:
        if len(self.upper):
            return self._lower.read(tokens)

        def read(places: IntArray) -> Tensor:
            return self._lower.read(tokens.take(places)).means()

        vectors = self._store().fetch(tokens.keys("mean"), read)
        return States(np.arange(len(tokens) + 1), vectors)

    def _store(self) -> VectorStore:
        path = cache_folder() / "vectors" / f"{self.base.fingerprint()[:16]}.safetensors"
        return VectorStore(path, self.base.width)


class CachedEncoder:
    """Vectors that were read before; the language model itself is only loaded for what has none yet."""

    def __init__(self, entities: Tensor, relations: Tensor, load: Callable[[], TextEncoder]) -> None:
        self._entities, self._relations, self._load = entities, relations, load

    def entities(self, places: Tensor) -> Tensor:
        """Vectors of entities; shape (places, width)."""
        return self._entities[places]

    def relations(self, places: Tensor) -> Tensor:
        """Vectors of relations, those asked backwards behind the others; shape (places, width)."""
        return self._relations[places]

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Vectors of questions read as one text; shape (questions, width)."""
        return self.model.questions(anchors, relations)

    @cached_property
    def model(self) -> TextEncoder:
        """The language model that has read the vectors."""
        return self._load()
