"""Shares of the shards: each process scores its own, and merged they are what one process would have written."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load, save

from cascader.errors import DataError, SettingsError, StorageError, UnscoredError
from cascader.graph import Queries
from cascader.scoring import ScoreStore, StoredScorer
from cascader.scoring.engine import LocalEngine
from cascader.scoring.shares import Merger, Share, ShareEngine, check_complete
from tests.scoring.test_stored_scorer import IDENTITY, Watched, files

COMMAND = "cascader evaluate run --shard {}"


@pytest.fixture
def blocks(toy):
    return list(Queries.from_triples(toy.triples()).blocks(8))


@pytest.fixture
def store(tmp_path):
    return ScoreStore(tmp_path / "scores" / "cross", IDENTITY, shard_pairs=7)


def scored(kg, blocks, store, folder, share):
    """Score one share of all blocks, as a process of an array does; return the scorer that did."""
    watched, engine = Watched(kg), ShareEngine(Share.parse(share), folder, LocalEngine(), COMMAND)
    for block in blocks:
        with pytest.raises(UnscoredError, match="Merge these first"):
            StoredScorer(watched, kg, engine.store("cross", store)).score_all(block)
    return watched


def merged(store, *folders):
    merger = Merger("cross", store, folders)
    check_complete([merger], "run")
    return merger.merge()


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_merged_shares_are_the_files_that_one_process_writes(toy, blocks, store, tmp_path, count):
    one = Watched(toy)
    alone = StoredScorer(one, toy, ScoreStore(tmp_path / "alone", IDENTITY, shard_pairs=7))
    for block in blocks:
        alone.score_all(block)
    shares = [scored(toy, blocks, store, tmp_path / "shares", f"{number + 1}/{count}") for number in range(count)]
    assert not store.folder.exists()
    assert sorted(pair for share in shares for pair in share.pairs) == sorted(one.pairs)
    assert merged(store, tmp_path / "shares") == len(one.pairs)
    assert files(tmp_path / "scores" / "cross") == files(tmp_path / "alone")


def test_shares_in_folders_of_their_own_are_merged_and_merged_again_add_nothing(toy, blocks, store, tmp_path):
    folders = [tmp_path / f"share-{number}" for number in (1, 2, 3)]
    for number, folder in enumerate(folders, start=1):
        scored(toy, blocks, store, folder, f"{number}/3")
    before = [files(folder) for folder in folders]
    assert merged(store, *folders) > 0
    written = files(store.folder)
    assert merged(store, *folders) == 0
    assert (files(store.folder), [files(folder) for folder in folders]) == (written, before)


def test_a_killed_share_goes_on_with_what_it_lacks(toy, blocks, store, tmp_path):
    whole = scored(toy, blocks, store, tmp_path / "shares", "1/2")
    *_, victim, damaged = sorted(path for path in (tmp_path / "shares").rglob("0*.safetensors"))
    victim.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-3])
    again = scored(toy, blocks, store, tmp_path / "shares", "1/2")
    assert (again.calls, whole.calls > 2) == (2, True)


def test_what_is_missing_is_named_with_the_commands_that_make_it_and_nothing_is_merged(toy, blocks, store, tmp_path):
    for share in ("1/4", "3/4"):
        scored(toy, blocks, store, tmp_path / "shares", share)
    with pytest.raises(DataError) as missing:
        merged(store, tmp_path / "shares")
    message = str(missing.value)
    assert "shards of run are missing, and nothing was merged. Make them with: " in message
    assert all(f"cascader evaluate run --shard {share} (" in message for share in ("2/4", "4/4"))
    assert not any(f"--shard {share} (" in message for share in ("1/4", "3/4"))
    assert not store.folder.exists()
    for share in ("2/4", "4/4"):
        scored(toy, blocks, store, tmp_path / "shares", share)
    assert merged(store, tmp_path / "shares") > 0


class Elsewhere:
    """An engine whose workers have a copy of the run of their own."""

    def run(self, task, shards, loaded=None):
        yield from range(len(shards))


def test_a_share_that_a_worker_has_written_elsewhere_is_an_error_at_once(toy, blocks, store, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.scoring.store._SECONDS_TO_ARRIVE", 0.0)
    engine = ShareEngine(Share(1, 1), tmp_path / "shares", Elsewhere(), COMMAND)
    scorer = StoredScorer(Watched(toy), toy, engine.store("cross", store), engine)
    with pytest.raises(StorageError, match="a worker has written .*shares/cross/.*, but not into this folder"):
        scorer.score_all(blocks[0])


def cut_short(content):
    return content[:-3]


def flipped_in_a_score(content):
    arrays = load(content)
    arrays["scores"][0] += 1
    return save(arrays)


@pytest.mark.parametrize("damage", [cut_short, flipped_in_a_score])
def test_a_damaged_shard_is_as_good_as_missing(toy, blocks, store, tmp_path, damage):
    for share in ("1/2", "2/2"):
        scored(toy, blocks, store, tmp_path / "shares", share)
    damaged = max(path for path in (tmp_path / "shares").rglob("0*.safetensors"))
    damaged.write_bytes(damage(damaged.read_bytes()))
    with pytest.raises(DataError, match=r"1 shards of run are missing.*evaluate run --shard [12]/2 \(1 missing\)"):
        merged(store, tmp_path / "shares")


def test_what_another_process_has_scored_meanwhile_is_not_missing(toy, blocks, store, tmp_path):
    scored(toy, blocks, store, tmp_path / "shares", "1/2")
    for block in blocks:
        StoredScorer(Watched(toy), toy, store).score_all(block)
    assert merged(store, tmp_path / "shares") == 0


def test_pairs_that_are_not_those_that_were_asked_for_are_refused(toy, blocks, store, tmp_path):
    scored(toy, blocks, store, tmp_path / "shares", "1/1")
    one, other, *_ = sorted((tmp_path / "shares").rglob("keys.safetensors"))
    shutil.copy(one, other)
    with pytest.raises(DataError, match="does not hold the pairs that its job.json speaks of. Delete its folder"):
        merged(store, tmp_path / "shares")


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "2/", "a/b", "-1/8", "1/0", "2/8/3", "\u0662/8", ""])
def test_a_share_that_is_none(text):
    with pytest.raises(SettingsError, match=r"--shard is '.*', expected a number of as many, from 1/8 to 8/8"):
        Share.parse(text)


def test_shares_have_every_shard_once():
    shares = [Share(number, 5) for number in range(1, 6)]
    assert (np.sum([[share.has(shard) for shard in range(13)] for share in shares], axis=0) == 1).all()
