"""The vectors of texts that the towers of a dual encoder start from."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cascader.errors import DataError
from cascader.graph import IntArray
from cascader.models.text.base_model import BaseModel
from cascader.models.text.reading import FrozenLayers
from cascader.models.text.split_encoder import States, join, run_layers
from cascader.models.text.text_model import GraphTexts, Tokens
from cascader.storage import cache_folder, read_tensors, write_tensors


class Encoder(Protocol):
    """Encodes the texts of a graph, each as the mean of its token states."""

    def entities(self, places: Tensor) -> Tensor:
        """The vectors of entities; shape (places, width)."""
        ...

    def relations(self, places: Tensor) -> Tensor:
        """The vectors of relations, inverse ones after the others; shape (places, width)."""
        ...

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """The vectors of questions, each read as one text; shape (questions, width)."""
        ...


class TextEncoder(nn.Module):
    """Encodes with a pretrained model, of which only the upper `trainable_layers` are trained.

    The states below those layers never change, so they are computed once. Without trainable layers, the vectors
    themselves never change, and they are cached on disk for all runs on this machine.
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

    @property
    def states(self) -> States:
        """The kept states of entities: those of their tokens, or whole vectors if no layer is trained."""
        return self._entities

    def entities(self, places: Tensor) -> Tensor:
        """The vectors of entities; shape (places, width)."""
        return self._vectors(self._entities, places)

    def relations(self, places: Tensor) -> Tensor:
        """The vectors of relations, inverse ones after the others; shape (places, width)."""
        return self._vectors(self._relations, places)

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """The vectors of questions, each read as one text, the relation first; shape (questions, width)."""
        if len(self.upper) == 0:
            # No layer sees both segments, so their vectors are averaged.
            return (self.relations(relations) + self.entities(anchors)) / 2
        return self._joined([(self._relations, relations.cpu().numpy()), (self._entities, anchors.cpu().numpy())])

    def _vectors(self, states: States, places: Tensor) -> Tensor:
        if len(self.upper) == 0:
            return states.rows[places]
        return self._joined([(states, places.cpu().numpy())])

    def _joined(self, segments: list[tuple[States, IntArray]]) -> Tensor:
        states, mask, _ = join(segments, self.base.device)
        states = run_layers(self.upper, states, mask)
        return (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def _read(self, tokens: Tokens) -> States:
        if len(self.upper):
            return self._lower.read(tokens)

        def read(places: IntArray) -> Tensor:
            return self._lower.read(tokens.take(places), kept="mean").rows

        vectors = self._store().fetch(tokens.keys("mean"), read)
        return States(np.arange(len(tokens) + 1), vectors.to(self.base.device))

    def _store(self) -> "VectorStore":
        path = cache_folder() / "vectors" / f"{self.base.fingerprint()[:16]}.safetensors"
        return VectorStore(path, self.base.width)


class CachedEncoder:
    """Vectors that were computed before; the pretrained model is only loaded for texts without one."""

    def __init__(self, entities: Tensor, relations: Tensor, load: Callable[[], TextEncoder]) -> None:
        self._entities, self._relations, self._load = entities, relations, load

    def entities(self, places: Tensor) -> Tensor:
        """The vectors of entities; shape (places, width)."""
        return self._entities[places]

    def relations(self, places: Tensor) -> Tensor:
        """The vectors of relations, inverse ones after the others; shape (places, width)."""
        return self._relations[places]

    def questions(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """The vectors of questions, each read as one text; shape (questions, width)."""
        return self.model.questions(anchors, relations)

    @cached_property
    def model(self) -> TextEncoder:
        """The encoder that computed the vectors."""
        return self._load()


class VectorStore:
    """A file of vectors by the hash of their texts, so that only new texts are read; a damaged file is replaced."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width

    def fetch(self, keys: list[str], read: Callable[[IntArray], Tensor]) -> Tensor:
        """The vector of each key, (keys, width); `read` computes those of the missing keys from their places."""
        stored_keys, stored = self._load()
        missing = _missing(keys, stored_keys)
        if missing:
            stored = torch.cat([stored, read(np.array(list(missing.values())))])
            stored_keys = [*stored_keys, *missing]
            self._save(stored_keys, stored)
        place_of = {key: place for place, key in enumerate(stored_keys)}
        return stored[torch.tensor([place_of[key] for key in keys], dtype=torch.long)]

    def missing(self, keys: list[str]) -> IntArray:
        """The places of the keys without a vector, each distinct key once."""
        return np.array(list(_missing(keys, self._load()[0]).values()), dtype=np.int64)

    def _load(self) -> tuple[list[str], Tensor]:
        nothing: tuple[list[str], Tensor] = [], torch.empty(0, self._width)
        if not self._path.exists():
            return nothing
        try:
            found, _ = read_tensors(self._path)
            keys, vectors = found["keys"], found["vectors"]
        except (DataError, KeyError):
            return nothing
        if vectors.shape != (len(keys), self._width):
            return nothing
        return [bytes(key).hex() for key in keys.numpy()], vectors

    def _save(self, keys: list[str], vectors: Tensor) -> None:
        raw = np.frombuffer(bytes.fromhex("".join(keys)), dtype=np.uint8).reshape(len(keys), -1).copy()
        write_tensors(self._path, {"keys": torch.from_numpy(raw), "vectors": vectors})


def _missing(keys: list[str], stored_keys: list[str]) -> dict[str, int]:
    """The keys that are not stored, each with its first place."""
    stored = set(stored_keys)
    return {key: place for place, key in reversed(list(enumerate(keys))) if key not in stored}
