"""What every score store must do, wherever it stores the scores."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cascader.scoring import Store


class Scoring:
    """Computes shards like an engine, and records their pairs; the score of a pair is a tenth of its key."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.shards: list[list[int]] = []
        self.fails_after = fails_after

    def __call__(self, shards) -> Iterator[int]:
        for place, shard in enumerate(shards):
            self.shards.append(shard.keys.tolist())
            shard.keep(shard.keys.astype(np.float32) / 10)
            yield place
            if len(self.shards) == self.fails_after:
                raise RuntimeError("interrupted")

    @property
    def pairs(self) -> list[int]:
        return [key for shard in self.shards for key in shard]


def keys_of(*keys: int) -> np.ndarray:
    return np.array(keys, dtype=np.int64)


class StoreContract:
    """What every store must do; subclasses implement `make`, which makes one with shards of three pairs in `folder`."""

    def make(self, folder: Path) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path):
        folder = tmp_path / "run" / "scores" / "cross"  # as in a run
        folder.mkdir(parents=True)
        return self.make(folder)

    def test_finds_nothing_where_nothing_was_computed(self, store):
        found = store.find(keys_of(1, 2))
        assert np.isnan(found).tolist() == [True, True]
        assert found.dtype == np.float32
        assert store.find(keys_of()).shape == (0,)

    def test_finds_what_was_computed_in_any_order_and_as_often_as_it_is_asked(self, store):
        list(store.compute(keys_of(1, 5, 9), Scoring()))
        np.testing.assert_array_equal(
            store.find(keys_of(9, 1, 4, 9)), np.array([0.9, 0.1, np.nan, 0.9], dtype=np.float32)
        )

    def test_says_how_many_pairs_each_shard_had(self, store):
        scoring = Scoring()
        counts = list(store.compute(keys_of(*range(7)), scoring))
        assert counts == [len(shard) for shard in scoring.shards]
        assert sum(counts) == 7

    def test_no_pair_is_computed_twice(self, store):
        scoring = Scoring()
        list(store.compute(keys_of(1, 5), scoring))
        list(store.compute(keys_of(1, 3, 5, 7), scoring))
        list(store.compute(keys_of(1, 3, 5, 7), scoring))
        assert scoring.pairs == [1, 5, 3, 7]

    def test_computes_nothing_of_no_pairs(self, store):
        scoring = Scoring()
        assert list(store.compute(keys_of(), scoring)) == []
        assert scoring.pairs == []

    def test_large_keys_are_told_apart(self, store):
        large = 2**62
        list(store.compute(keys_of(large, large + 1), Scoring()))
        assert np.isnan(store.find(keys_of(large - 1, large, large + 2))).tolist() == [True, False, True]

    def test_after_an_interruption_all_is_there_and_what_was_finished_is_not_lost(self, store):
        keys = keys_of(*range(7))
        first, second = Scoring(fails_after=1), Scoring()
        with pytest.raises(RuntimeError, match="interrupted"):
            list(store.compute(keys, first))
        list(store.compute(keys, second))
        np.testing.assert_array_equal(store.find(keys), keys.astype(np.float32) / 10)
        assert sorted(first.pairs + second.pairs) == keys.tolist()

    def test_leaves_the_keys_alone(self, store):
        keys = keys_of(2, 4, 6, 8)
        list(store.compute(keys, Scoring()))
        store.find(keys)
        assert keys.tolist() == [2, 4, 6, 8]
