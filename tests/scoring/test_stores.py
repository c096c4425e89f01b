"""The three stores do what every store must; and those with files find it again another day."""

import numpy as np

from cascader.scoring import MemoryStore, ScoreStore, WriteBehind
from tests.contracts import StoreContract
from tests.contracts.store import Scoring, keys_of

IDENTITY = {"model": "ab12", "data": "cd34"}


class TestMemoryStore(StoreContract):
    def make(self, folder):
        return MemoryStore(shard_pairs=3)


class TestScoreStore(StoreContract):
    def make(self, folder):
        return ScoreStore(folder, IDENTITY, shard_pairs=3)

    def test_another_store_of_the_same_folder_has_it_too(self, tmp_path):
        list(self.make(tmp_path).compute(keys_of(*range(7)), Scoring()))
        assert not np.isnan(self.make(tmp_path).find(keys_of(*range(7)))).any()


class TestWriteBehind(StoreContract):
    def make(self, folder):
        return WriteBehind(ScoreStore(folder, IDENTITY, shard_pairs=3))


class TestWriteBehindThatWritesAtOnce(StoreContract):
    def make(self, folder):
        return WriteBehind(ScoreStore(folder, IDENTITY, shard_pairs=3), waiting_pairs=1)
