"""Scores in memory, found by binary search."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from cascader.graph import FloatArray, IntArray
from cascader.scoring.shards import SHARD_PAIRS, MemoryShard, cut

#: Computes shards, and yields the position of each once it is done.
RunShards = Callable[[Sequence[Any]], Iterator[int]]


class Store(Protocol):
    """Stores scores by the keys of their pairs."""

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        ...

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores of distinct, ascending keys; yield the number of pairs of each shard."""
        ...


class MemoryStore:
    """Stores scores in memory only, and writes no files.

    >>> store = MemoryStore()
    >>> store.add([(np.array([3, 5]), np.array([0.25, 0.5], dtype=np.float32))])
    >>> store.find(np.array([5, 4])).tolist()
    [0.5, nan]
    """

    def __init__(self, shard_pairs: int = SHARD_PAIRS) -> None:
        self._shard_pairs = shard_pairs
        self._keys: IntArray = np.empty(0, dtype=np.int64)  # ascending
        self._scores: FloatArray = np.empty(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> IntArray:
        """The keys of all stored pairs, ascending; shape (pairs,)."""
        return self._keys

    def find(self, keys: IntArray) -> FloatArray:
        """Return the score of each pair, NaN if there is none; shape (keys,)."""
        if len(self._keys) == 0:
            return np.full(len(keys), np.nan, dtype=np.float32)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._scores[places], np.float32(np.nan))

    def add(self, parts: Sequence[tuple[IntArray, FloatArray]]) -> None:
        """Add more pairs and their scores."""
        keys = np.concatenate([self._keys, *(keys for keys, _ in parts)])
        scores = np.concatenate([self._scores, *(scores for _, scores in parts)])
        order = np.argsort(keys, kind="stable")  # fast on an array of sorted parts
        self._keys, self._scores = keys[order], scores[order]

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute the missing scores in this process."""
        shards = [MemoryShard(part) for part in cut(keys[np.isnan(self.find(keys))], self._shard_pairs)]
        for place in run(shards):
            self.add([(shards[place].keys, shards[place].scores)])
            yield len(shards[place].keys)
