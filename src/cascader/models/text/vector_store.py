"""Vectors of texts, kept on disk by what the text says: a changed or new entity is read again, and no other."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cascader.errors import DataError
from cascader.graph import IntArray
from cascader.storage import read_tensors, write_tensors


class VectorStore:
    """A file of vectors, each under the hash of its text; a file that cannot be read is made anew."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width

    def fetch(self, keys: list[str], read: Callable[[IntArray], Tensor]) -> Tensor:
        """The vector of each key, (keys, width); `read` is given the places of those that are missing."""
        stored_keys, stored = self._load()
        missing = _missing(keys, stored_keys)
        if missing:
            stored = torch.cat([stored, read(np.array(list(missing.values())))])
            stored_keys = [*stored_keys, *missing]
            self._save(stored_keys, stored)
        place_of = {key: place for place, key in enumerate(stored_keys)}
        return stored[torch.tensor([place_of[key] for key in keys], dtype=torch.long)]

    def missing(self, keys: list[str]) -> IntArray:
        """The places of those keys that have no vector yet, each distinct key once."""
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
    """The keys that are not stored, with the place where each first stands."""
    stored = set(stored_keys)
    return {key: place for place, key in reversed(list(enumerate(keys))) if key not in stored}
