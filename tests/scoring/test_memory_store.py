from cascader.scoring import MemoryStore
from tests.contracts import StoreContract


class TestMemoryStore(StoreContract):
    def make(self, folder):
        return MemoryStore(shard_pairs=3)
