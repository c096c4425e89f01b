"""A cross encoder's scores in a run's folder: the same in any number of processes, and after any number of kills."""

import platform
import time
from collections import Counter
from itertools import count

import numpy as np
import pytest

from cascader.errors import DataError, SettingsError
from cascader.graph import Queries
from cascader.models.text import CrossEncoder
from cascader.runs import RunFolder
from cascader.runs.folder import load_scorer
from cascader.scoring import ScoreStore, StoredScorer
from cascader.scoring.engine import Call, LocalEngine
from cascader.storage import LOCK
from tests.processes import forking

IDENTITY = {"model": "tiny", "data": "toy"}
SHARD_PAIRS = 4
KILLS = 6


@pytest.fixture(scope="module")
def model(toy, tiny_model):
    return CrossEncoder(base=tiny_model, rounds=1, queries_per_round=8, split_layer=0).fit(toy)


@pytest.fixture(scope="module")
def retrained(toy, model):
    """The same settings but for the seed."""
    return CrossEncoder(**{**model.settings.as_dict(), "seed": 1}).fit(toy)


@pytest.fixture
def run(toy, model, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.save_graph(toy)
    folder.save_tier("cross", model)
    return folder


@pytest.fixture
def queries(toy):
    return Queries.from_triples(toy.triples())


def loaded_from(run):
    return load_scorer(run.address, "cross", run.tier_hash("cross"))


@pytest.mark.parametrize("shard_pairs", [3, 20, 8192])
def test_the_scores_do_not_depend_on_the_size_of_the_shards(toy, model, queries, tmp_path, shard_pairs):
    store = ScoreStore(tmp_path / "scores", IDENTITY, shard_pairs)
    scores = StoredScorer(model, toy, store).score_all(queries)
    np.testing.assert_allclose(scores, model.score_all(queries), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_two_processes_write_what_one_writes(toy, model, run, queries, tmp_path):
    scores, load = {}, Call(load_scorer, (run.address, "cross", run.tier_hash("cross")))
    for processes in (1, 2):
        store = ScoreStore(tmp_path / str(processes), IDENTITY, shard_pairs=20)
        with LocalEngine(processes) as engine:
            scorer = StoredScorer(model, toy, store, engine, load)
            scores[processes] = scorer.score_all(queries)
    np.testing.assert_array_equal(scores[2], scores[1])
    assert contents(tmp_path / "2") == contents(tmp_path / "1")
    assert len(contents(tmp_path / "1")) > 3


def test_a_runs_tier_keeps_its_scores_and_another_model_starts_anew(toy, model, retrained, run, queries):
    first = run.stored("cross", model, toy)
    scores = first.score_all(queries)
    assert first.pairs_computed == first.pairs_asked
    again = run.stored("cross", loaded_from(run), toy)
    np.testing.assert_array_equal(again.score_all(queries), scores)
    assert again.pairs_computed == 0
    run.save_tier("cross", retrained)
    other = run.stored("cross", loaded_from(run), toy)
    assert np.abs(other.score_all(queries) - scores).max() > 1e-3
    assert other.pairs_computed == other.pairs_asked


def test_a_worker_never_scores_with_a_model_that_was_trained_since(retrained, run):
    before = run.tier_hash("cross")
    run.save_tier("cross", retrained)
    with pytest.raises(DataError, match="tier 'cross' of .* has been trained again since"):
        load_scorer(run.address, "cross", before)


def test_a_machine_that_does_not_have_the_run_says_which_it_is_and_what_it_needs(tmp_path):
    with pytest.raises(
        DataError, match=f"the machine {platform.node()} has no tier 'cross' in {tmp_path}/run.*a disk that they share"
    ):
        load_scorer(tmp_path / "run", "cross", "ab12")


def test_a_tier_that_is_not_trained_has_no_scores_to_keep(toy, model, tmp_path):
    with pytest.raises(SettingsError, match="has no trained tier 'cross' whose scores could be stored"):
        RunFolder(tmp_path).stored("cross", model, toy)


class Noting:
    """A scorer that notes each shard that it is given."""

    def __init__(self, scorer, path):
        self.scorer, self.path = scorer, path

    def score(self, queries, candidates):
        with self.path.open("a") as file:
            file.write(f"{candidates.counts.sum()}\n")
        return self.scorer.score(queries, candidates)


def score_everything(run, kg, folder, notes, is_ready):
    scorer = Noting(loaded_from(run), notes)
    stored = StoredScorer(scorer, kg, ScoreStore(folder, IDENTITY, SHARD_PAIRS))
    is_ready.set()
    for block in Queries.from_triples(kg.triples()).blocks(10):
        stored.score_all(block)


@pytest.fixture
def start(toy, run):
    """Starts a process that scores everything, and gives it back once it has loaded the model."""
    context = forking()

    def started(folder):
        folder.mkdir(exist_ok=True)
        is_ready = context.Event()
        arguments = (run, toy, folder / "scores", folder / "notes", is_ready)
        process = context.Process(target=score_everything, args=arguments)
        process.start()
        assert is_ready.wait(120)
        return process

    return started


def killed_after(process, seconds):
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode != 0


def shards_scored(folder):
    return len((folder / "notes").read_text().splitlines())


def contents(folder):
    """Every file but the lock, which may still name a process that was killed."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_and_ends_in_the_same_bytes(start, tmp_path, random_seed):
    whole = tmp_path / "whole"
    process, began = start(whole), time.monotonic()
    assert not killed_after(process, seconds=120)
    whole_seconds = time.monotonic() - began
    rng = np.random.default_rng(random_seed)
    folders, kills = (tmp_path / f"killed-{number}" for number in count()), Counter()
    folder = next(folders)
    while kills.total() < KILLS:
        if killed_after(start(folder), rng.uniform(0, whole_seconds / 4)):
            kills[folder] += 1
        else:
            folder = next(folders)
    for folder, times in kills.items():
        assert not killed_after(start(folder), seconds=120)
        assert contents(folder / "scores") == contents(whole / "scores")
        assert shards_scored(whole) <= shards_scored(folder) <= shards_scored(whole) + times


@pytest.mark.slow
def test_two_processes_on_one_store_score_nothing_twice(start, tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    assert not killed_after(start(alone), seconds=120)
    both = [start(shared), start(shared)]
    assert not any([killed_after(process, seconds=120) for process in both])
    assert contents(shared / "scores") == contents(alone / "scores")
    assert shards_scored(shared) == shards_scored(alone)
