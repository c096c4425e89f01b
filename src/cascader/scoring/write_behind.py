"""A store for many small questions: new scores are used at once, and written to files together."""

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from cascader.errors import CascaderError
from cascader.graph import FloatArray, IntArray
from cascader.scoring.memory_store import MemoryStore, RunShards
from cascader.scoring.score_store import ScoreStore

logger = logging.getLogger(__name__)
#: A question reads some ten pairs: a file for each would cost more than to read them.
WAITING_PAIRS = 8192


class WriteBehind:
    """Keeps new scores in memory and writes them once there are many; where that fails, they stay in memory."""

    def __init__(self, written: ScoreStore, waiting_pairs: int = WAITING_PAIRS) -> None:
        self._written = written
        self._waiting_pairs = waiting_pairs
        self._new = MemoryStore()
        self._next_write = waiting_pairs

    def find(self, keys: IntArray) -> FloatArray:
        """The score of each pair, NaN where there is none; shape (keys,)."""
        scores = self._new.find(keys)
        missing = np.isnan(scores)
        scores[missing] = self._written.find(keys[missing])
        return scores

    def compute(self, keys: IntArray, run: RunShards) -> Generator[int, None, None]:
        """Let `run` compute what is missing, in this process."""
        yield from self._new.compute(keys[np.isnan(self.find(keys))], run)
        if len(self._new) >= self._next_write:
            self.write()

    def write(self) -> None:
        """Write what is new, unless the folder that it belongs to is gone."""
        if len(self._new) == 0:
            return
        # Its folder is RUN/scores/TIER/HASH: a run that was removed must not come back as a few scores.
        if not self._written.folder.parents[2].exists():
            self._next_write = len(self._new) + self._waiting_pairs
            return
        try:
            for _ in self._written.compute(self._new.keys, self._keep):
                pass
        except (CascaderError, OSError) as error:
            logger.warning("%s %s new scores stay in memory only.", error, f"{len(self._new):,}")
            self._next_write = len(self._new) + self._waiting_pairs
            return
        self._new = MemoryStore()
        self._next_write = self._waiting_pairs

    def _keep(self, shards: Sequence[Any]) -> Iterator[int]:
        """Fill shards with what is in memory."""
        for place, shard in enumerate(shards):
            shard.keep(self._new.find(shard.keys))
            yield place
