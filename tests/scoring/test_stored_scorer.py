"""A stored scorer: the same scores, each computed once, whatever happens to the files."""

import json
import logging

import numpy as np
import pytest

from cascader.display import _Lines, listening
from cascader.errors import DataError, EngineError, SettingsError, TrainingError
from cascader.graph import Candidates, Queries
from cascader.models import Frequency
from cascader.scoring import MemoryStore, ScoreStore, StoredScorer
from cascader.scoring.engine import Call, LocalEngine
from tests.contracts import ScorerContract
from tests.scoring.work import Showing

JOB = {"name": "00000", "asked": "0" * 64}
IDENTITY = {"model": "ab12", "data": "cd34"}


class Watched:
    """A scorer that counts what it is asked for, and may fail at one of the calls."""

    def __init__(self, kg, fails_at=None, error=EngineError("killed"), shift=0.0):  # noqa: B008
        self.frequency = Frequency().fit(kg)
        self.calls, self.pairs = 0, []
        self.fails_at, self.error, self.shift = fails_at, error, shift

    def score(self, queries, candidates):
        self.calls += 1
        if self.calls == self.fails_at:
            raise self.error
        rows = candidates.rows
        asked = zip(queries.sides, queries.relations, queries.anchors, strict=True)
        questions = list(asked)
        self.pairs += [(*questions[row], entity) for row, entity in zip(rows, candidates.ids, strict=True)]
        return self.frequency.score(queries, candidates) + np.float32(self.shift)

    def score_all(self, queries):
        raise AssertionError("never asked about all entities at once")


@pytest.fixture
def queries(toy):
    return Queries.from_triples(toy.triples())


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryStore(shard_pairs=7) if request.param == "memory" else ScoreStore(tmp_path, IDENTITY, shard_pairs=7)


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TestInMemory(ScorerContract):
    def make(self, kg):
        return StoredScorer(Frequency().fit(kg), kg)


class TestInAFolder(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, tmp_path_factory):
        folder = tmp_path_factory.mktemp("scores")
        return StoredScorer(Frequency().fit(toy), toy, ScoreStore(folder, IDENTITY, shard_pairs=5))


def test_no_pair_is_scored_twice_and_identical_pairs_once(toy, queries, store):
    watched = Watched(toy)
    scorer = StoredScorer(watched, toy, store)
    some = Candidates.from_lists([[0, 3, 3]] * len(queries))
    scorer.score(queries, some)
    questions = len(queries.unique()[0])
    assert (scorer.pairs_asked, scorer.pairs_computed, len(watched.pairs)) == (2 * questions,) * 3
    everything = scorer.score_all(queries)
    np.testing.assert_array_equal(everything, watched.frequency.score_all(queries))
    assert len(watched.pairs) == len(set(watched.pairs)) == scorer.pairs_computed == questions * len(toy.entities)
    calls = watched.calls
    scorer.score_all(queries)
    assert watched.calls == calls
    assert scorer.pairs_asked == questions * (2 + 2 * len(toy.entities))


def test_another_scorer_finds_what_the_first_has_kept(toy, queries, tmp_path):
    scores = StoredScorer(Watched(toy), toy, ScoreStore(tmp_path, IDENTITY)).score_all(queries)
    watched = Watched(toy)
    again = StoredScorer(watched, toy, ScoreStore(tmp_path, IDENTITY))
    np.testing.assert_array_equal(again.score_all(queries), scores)
    assert (watched.calls, again.pairs_computed) == (0, 0)


@pytest.mark.parametrize("changed", ["model", "data"])
def test_scores_of_another_model_or_graph_are_never_used(toy, queries, tmp_path, changed):
    StoredScorer(Watched(toy), toy, ScoreStore(tmp_path, IDENTITY)).score_all(queries)
    other = StoredScorer(Watched(toy, shift=100), toy, ScoreStore(tmp_path, {**IDENTITY, changed: "ef56"}))
    np.testing.assert_array_equal(other.score_all(queries), Frequency().fit(toy).score_all(queries) + 100)


@pytest.mark.parametrize("fails_at", [1, 2, 9, 12])
def test_an_interrupted_job_goes_on_and_ends_in_the_same_bytes(toy, queries, tmp_path, fails_at):
    def ask(folder, watched):
        scorer = StoredScorer(watched, toy, ScoreStore(folder, IDENTITY, shard_pairs=7))
        for block in queries.blocks(8):
            scorer.score_all(block)
        return scorer

    whole = Watched(toy)
    ask(tmp_path / "whole", whole)
    first, second = Watched(toy, fails_at=fails_at), Watched(toy)
    with pytest.raises(EngineError, match="killed"):
        ask(tmp_path / "resumed", first)
    ask(tmp_path / "resumed", second)
    assert files(tmp_path / "resumed") == files(tmp_path / "whole")
    assert sorted(first.pairs + second.pairs) == sorted(whole.pairs)
    assert first.pairs == whole.pairs[: len(first.pairs)]
    assert (first.calls, second.calls) == (fails_at, whole.calls - (fails_at - 1))


def test_what_an_interrupted_job_has_finished_serves_other_questions_too(toy, queries, tmp_path):
    with pytest.raises(EngineError):
        StoredScorer(Watched(toy, fails_at=5), toy, ScoreStore(tmp_path, IDENTITY, shard_pairs=7)).score_all(
            queries[:9]
        )
    watched = Watched(toy)
    scorer = StoredScorer(watched, toy, ScoreStore(tmp_path, IDENTITY, shard_pairs=11))
    np.testing.assert_array_equal(scorer.score_all(queries), watched.frequency.score_all(queries))
    total = len(queries.unique()[0]) * len(toy.entities)
    assert 0 < total - len(watched.pairs) <= 4 * 7


def damage(path, how):
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-9] if how == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("how", ["one bit", "truncated", "missing"])
def test_a_damaged_shard_is_found_and_only_its_pairs_are_scored_again(toy, queries, tmp_path, caplog, how):
    store = ScoreStore(tmp_path, IDENTITY, shard_pairs=7)
    scores = StoredScorer(Watched(toy), toy, store).score_all(queries)
    before = {path: content for path, content in files(store.folder).items() if path.suffix == ".safetensors"}
    victim = store.folder / sorted(before)[2]
    damage(victim, how)
    again = StoredScorer(Watched(toy), toy, ScoreStore(tmp_path, IDENTITY, shard_pairs=7))
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(again.score_all(queries), scores)
    assert 0 < again.pairs_computed <= 7
    assert str(victim) in caplog.text
    assert "its pairs are scored again when they are needed" in caplog.text
    caplog.clear()
    third = StoredScorer(Watched(toy), toy, ScoreStore(tmp_path, IDENTITY, shard_pairs=7))
    np.testing.assert_array_equal(third.score_all(queries), scores)
    assert (third.pairs_computed, caplog.text) == (0, "")


def test_a_damaged_shard_of_an_interrupted_job_is_computed_again_to_the_same_bytes(toy, queries, tmp_path, caplog):
    def ask(folder, fails_at=None):
        store = ScoreStore(folder, IDENTITY, shard_pairs=7)
        StoredScorer(Watched(toy, fails_at=fails_at), toy, store).score_all(queries)

    ask(tmp_path / "whole")
    with pytest.raises(EngineError):
        ask(tmp_path / "resumed", fails_at=5)
    damage(next((tmp_path / "resumed").rglob("00001.safetensors")), "one bit")
    ask(tmp_path / "resumed")
    assert "00001.safetensors is damaged" in caplog.text
    assert files(tmp_path / "resumed") == files(tmp_path / "whole")


def test_what_killed_processes_left_is_cleared_away(toy, queries, tmp_path):
    store = ScoreStore(tmp_path, IDENTITY)
    left = [store.folder / ".manifest.json.0a.tmp", store.folder / "00000" / ".00000.safetensors.0b.tmp"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    StoredScorer(Watched(toy), toy, store).score_all(queries)
    assert not any(path.exists() for path in left)


def test_what_a_worker_leaves_that_is_killed_in_the_middle_is_cleared_away(toy, queries, tmp_path):
    store = ScoreStore(tmp_path, IDENTITY, shard_pairs=7)
    left = store.folder / "00000" / ".00003.safetensors.0b.tmp"

    class Leaving(Watched):
        def score(self, queries, candidates):
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_text("half")
            return super().score(queries, candidates)

    StoredScorer(Leaving(toy), toy, store).score_all(queries)
    assert not left.exists()


def test_nan_is_an_error_and_never_kept(toy, queries, store):
    with pytest.raises(TrainingError, match="scores 7 of 7 pairs as NaN, the first: relation 0, anchor 1, candidate 0"):
        StoredScorer(Watched(toy, shift=np.nan), toy, store).score_all(queries)
    scorer = StoredScorer(Watched(toy), toy, store)
    np.testing.assert_array_equal(scorer.score_all(queries), Frequency().fit(toy).score_all(queries))
    assert scorer.pairs_computed == scorer.pairs_asked


def test_scores_in_memory_stay_in_this_process(toy, queries):
    scorer = StoredScorer(Watched(toy), toy, MemoryStore(), LocalEngine(processes=2))
    with pytest.raises(SettingsError, match="a store with a folder, or set processes to 1"):
        scorer.score_all(queries)


def test_a_shard_of_no_pairs(toy, queries):
    with pytest.raises(SettingsError, match="shard_pairs is 0, expected at least 1"):
        StoredScorer(Watched(toy), toy, MemoryStore(shard_pairs=0)).score_all(queries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2 and .* expected format 1 .*another version of cascader"),
        ({"identity": {"model": "x"}}, r"identity \{'model': 'x'\}, expected"),
        ({"jobs": [{"nmae": "00000"}]}, "has no jobs.0.name. Delete .* to start over"),
        ({"jobs": [JOB | {"name": "../../x"}]}, "has jobs.0.name '../../x'; expected a name of digits. Delete"),
        ({"jobs": [JOB | {"name": "\u0664"}]}, "has jobs.0.name '\u0664'; expected a name of digits. Delete"),
        ({"jobs": [JOB | {"shards": {"../x.safetensors": "0" * 64}}]}, "has jobs.0.shards.../x.safetensors"),
        ({"jobs": [JOB | {"shards": {"00000/00000.safetensors": "none"}}]}, "has jobs.0.shards.00000/00000.* 'none'"),
    ],
)
def test_a_manifest_that_is_not_ours_is_an_error_and_stays_as_it_is(toy, queries, tmp_path, change, message):
    store = ScoreStore(tmp_path, IDENTITY)
    StoredScorer(Watched(toy), toy, store).score_all(queries)
    path = store.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    before = files(tmp_path)
    with pytest.raises(DataError, match=message):
        StoredScorer(Watched(toy), toy, ScoreStore(tmp_path, IDENTITY)).score_all(queries)
    assert files(tmp_path) == before


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_several_processes_show_one_bar(toy, queries, tmp_path, monkeypatch):
    monkeypatch.setattr(_Lines, "seconds_between", 0.0)
    events, heard, load = [], tmp_path / "heard", Call(Showing, (toy, tmp_path / "heard"))
    with LocalEngine(2) as engine, listening(events.append):
        StoredScorer(None, toy, ScoreStore(tmp_path / "scores", IDENTITY, 7), engine, load).score_all(queries)
    assert len(events) > 2
    assert {event.text.split(":")[0] for event in events} == {"scoring pairs"}
    assert not heard.exists()
    Showing(toy, heard).score(queries[:1], Candidates.from_lists([[0]]))
    assert heard.read_text().startswith("reading pairs: 1 of 1")
