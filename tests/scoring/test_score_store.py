"""Stores with files do what every store must, and find it again another day; new scores may be written together."""

import shutil

import numpy as np
import pytest

from cascader.errors import StorageError
from cascader.scoring import ScoreStore, WriteBehind
from tests.contracts import StoreContract
from tests.contracts.store import Scoring, keys_of

IDENTITY = {"model": "ab12", "data": "cd34"}


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


def score(shards):
    for place, shard in enumerate(shards):
        shard.keep(shard.keys.astype(np.float32) / 10)
        yield place


def nothing(shards):
    assert list(shards) == []
    yield from ()


@pytest.fixture
def folder(tmp_path):
    """As in a run: RUN/scores/TIER."""
    return tmp_path / "run" / "scores" / "cross"


def elsewhere(shards):
    """An engine whose workers have a copy of the run of their own."""
    yield from range(len(shards))


def test_a_worker_that_writes_into_a_copy_of_its_own_is_an_error(folder, monkeypatch):
    monkeypatch.setattr("cascader.scoring.store._SECONDS_TO_ARRIVE", 0.0)
    with pytest.raises(
        StorageError,
        match=r"a worker has written .*00000/00000.safetensors, but not into this folder.*disk that all machines share",
    ):
        computed(ScoreStore(folder, IDENTITY), [1, 5], elsewhere)


def test_a_shard_that_a_network_disk_shows_late_is_waited_for(folder, monkeypatch):
    waiting = []

    def written_late(shards):
        waiting.extend(shards)
        yield from range(len(shards))

    monkeypatch.setattr("cascader.scoring.store.time.sleep", lambda _: list(score([waiting.pop()])))
    assert computed(ScoreStore(folder, IDENTITY), [1, 5], written_late) == 2


def computed(store, keys, run=score):
    return sum(store.compute(np.array(keys), run))


def test_scores_are_found_before_they_are_written_and_after(folder):
    store = WriteBehind(ScoreStore(folder, IDENTITY), waiting_pairs=4)
    folder.mkdir(parents=True)
    assert computed(store, [1, 5]) == 2
    assert store.find(np.array([1, 3, 5])).tolist() == pytest.approx([0.1, np.nan, 0.5], nan_ok=True)
    assert not list(folder.rglob("*.safetensors"))
    assert computed(store, [1, 3, 7]) == 2  # the fourth new pair has them all written
    assert len(list(folder.rglob("*.safetensors"))) == 1
    assert computed(WriteBehind(ScoreStore(folder, IDENTITY)), [1, 3, 5, 7], nothing) == 0
    assert computed(store, [1, 3, 5, 7], nothing) == 0


def test_what_is_left_is_written_when_asked_for(folder):
    folder.mkdir(parents=True)
    store = WriteBehind(ScoreStore(folder, IDENTITY))
    computed(store, [2, 4])
    store.write()
    store.write()
    assert ScoreStore(folder, IDENTITY).find(np.array([2, 4])).tolist() == pytest.approx([0.2, 0.4])


def test_a_run_that_is_gone_stays_gone_and_its_scores_stay_in_memory(folder, tmp_path):
    folder.mkdir(parents=True)
    store = WriteBehind(ScoreStore(folder, IDENTITY), waiting_pairs=2)
    computed(store, [1, 2])
    shutil.rmtree(tmp_path / "run")
    computed(store, [3, 4])
    store.write()
    assert not (tmp_path / "run").exists()
    assert computed(store, [1, 2, 3, 4], nothing) == 0


def test_scores_that_cannot_be_written_stay_in_memory(folder, caplog, monkeypatch):
    def full(path, content):
        raise StorageError(f"cannot write {path}: No space left on device.")

    folder.mkdir(parents=True)
    store = WriteBehind(ScoreStore(folder, IDENTITY), waiting_pairs=2)
    monkeypatch.setattr("cascader.scoring.store.write_json", full)
    assert computed(store, [1, 2]) == 2
    assert "No space left on device. 2 new scores stay in memory only" in caplog.text
    assert computed(store, [1, 2], nothing) == 0
    monkeypatch.undo()
    store.write()
    assert computed(ScoreStore(folder, IDENTITY), [1, 2], nothing) == 0


def test_a_store_that_is_full_keeps_new_scores_for_their_own_question_only(folder):
    folder.mkdir(parents=True)
    store = WriteBehind(ScoreStore(folder, IDENTITY), waiting_pairs=2, most_pairs=4)
    assert computed(store, [1, 2]) == 2  # written
    assert computed(store, [3, 4]) == 2  # full
    assert store.find(np.array([1, 2, 3, 4])).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    for _ in range(2):
        assert computed(store, [5, 6]) == 2
        assert store.find(np.array([1, 2, 5, 6])).tolist() == pytest.approx([0.1, 0.2, 0.5, 0.6])
        assert computed(store, [7]) == 1
        assert np.isnan(store.find(np.array([5, 6]))).all()
    assert len(ScoreStore(folder, IDENTITY).find(np.array([1, 2]))) == 2
    assert np.isnan(ScoreStore(folder, IDENTITY).find(np.array([5, 6, 7]))).all()
