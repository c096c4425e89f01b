"""Runs at URLs: the same as in a folder, on every machine, whatever happens in between."""

import json
import shutil
import sys

import numpy as np
import pytest

from cascader import fit, load_run, save_run
from cascader.cli import main
from cascader.errors import DataError, StorageError
from cascader.runs import RunFolder
from cascader.runs.measurement import read_share
from cascader.scoring import ScoreStore
from cascader.scoring.engine import FileShard, LocalEngine
from cascader.scoring.shares import Share, ShareEngine
from cascader.storage import local_path, refresh
from cascader.storage.remote import Remote
from cascader.tuning import Budget
from tests.faults.contents import contents_of, differences
from tests.processes import finished


@pytest.fixture(scope="module")
def options(tiny_model):
    cross = {"base": tiny_model, "rounds": 1, "queries_per_round": 8, "split_layer": 0, "precision": "float32"}
    settings = {"kge": {"dim": 4, "epochs": 2}, "cross": {**cross, "valid_top_k": 3}}
    return {"tiers": ["rules", "kge", "cross"], "settings": settings}


@pytest.fixture(scope="module")
def local(toy, options, tmp_path_factory):
    """The same run in a folder, with a result."""
    run = fit(toy, tmp_path_factory.mktemp("runs") / "mine", **options)
    run.evaluate(tiers=["kge", "cross"], name="both").save(run.folder.path / "results")
    return run


@pytest.fixture
def on(tmp_path, monkeypatch):
    """Go on as if on another machine."""
    return lambda machine: monkeypatch.setenv("CASCADER_CACHE", str(tmp_path / machine))


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["cascader", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr()


class RunAtUrlContract:
    """What a run at a URL does; subclasses have the fixture `url`, the URL of an empty place."""

    def test_it_is_the_run_of_a_folder_on_every_machine(self, toy, options, local, url, on, monkeypatch, capsys):
        on("here")
        run = fit(toy, url, **options)
        assert run.folder.address == url
        run.evaluate(tiers=["kge", "cross"], name="both").save(run.folder.path / "results")
        on("there")
        loaded = load_run(url)
        for each in (run, loaded):
            assert list(each.predict("aspirin", "treats")) == list(local.predict("aspirin", "treats"))
        np.testing.assert_array_equal(loaded.evaluate().ranks.filtered.mean, local.evaluate().ranks.filtered.mean)
        path = local_path(url)
        refresh(path)
        assert differences(contents_of(path), contents_of(local.folder.path)) == []
        code, printed = call(monkeypatch, capsys, "compare", url, local.folder.path)
        assert code == 0, printed.err
        monkeypatch.setattr(Remote, "get", None)  # everything is here by now
        fit(toy, url, **options)

    def test_scores_that_another_machine_has_stored_are_not_computed_again(self, toy, local, url, on):
        on("here")
        local.save(url)
        question, here = toy.query("aspirin", "treats", "tail"), load_run(url).scorers()["cross"]
        first = here.score_all(question)
        on("there")
        there = load_run(url).scorers()["cross"]
        second = there.score_all(question)
        np.testing.assert_array_equal(first, second)
        assert here.pairs_computed > 0
        assert there.pairs_computed == 0

    def test_what_a_stranger_has_changed_is_refused(self, local, url, on, tmp_path):
        on("here")
        local.save(url)
        damaged, remote = tmp_path / "damaged", Remote(url)
        content = bytearray((local.folder.tier("kge") / "model.safetensors").read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        on("there")
        remote.put("graph/x|y", damaged)
        with pytest.raises(DataError, match=r"has an object called 'graph/x\|y', which no run has"):
            load_run(url)
        remote.remove("graph/x|y")
        remote.put("tiers/kge/model.safetensors", damaged)
        with pytest.raises(DataError, match=f"^{url}/tiers/kge/model.safetensors is damaged: .*expected"):
            load_run(url)

    def test_a_run_that_is_not_there_is_no_run(self, url, on, monkeypatch, capsys):
        code, printed = call(monkeypatch, capsys, "predict", url, "aspirin", "treats")
        assert code == 2
        assert f"there is no folder {url}. Check the address, or make a run there with: cascader fit" in printed.err


class TestFolder(RunAtUrlContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"file://{tmp_path}/place/mine"

    def test_a_run_can_be_saved_there(self, local, url):
        assert load_run(save_run(url, local.kg, {"kge": local.tiers["kge"]}).folder.address).tiers.keys() == {"kge"}
        with pytest.raises(Exception, match=f"{url} already holds a run"):
            local.save(url)

    def test_a_place_that_is_read_only_is_read(self, local, url, on, monkeypatch):
        on("here")
        local.save(url)
        on("there")

        def refused(*_, **__):
            raise PermissionError("Access Denied")

        for name in ("put_file", "open", "mv", "rm_file"):
            monkeypatch.setattr(f"fsspec.implementations.local.LocalFileSystem.{name}", refused)
        run = load_run(url)
        assert list(run.predict("aspirin", "treats")) == list(local.predict("aspirin", "treats"))
        assert len(run.scorers()["cross"].score_all(local.kg.query("aspirin", "treats", "tail")))
        with pytest.raises(StorageError, match=f"{url} is read-only, so its result needs another place"):
            run.folder.check_writable("result")

    def test_the_report_is_put_beside_the_run(self, local, url, on, monkeypatch, capsys):
        on("here")
        local.save(url)
        code, printed = call(monkeypatch, capsys, "report", url)
        assert code == 0, printed.err
        assert f"Written to {url}/report/report.html" in printed.out
        assert {"report/report.html", "report/report.json"} <= Remote(url).list().keys()


@pytest.fixture
def alone(local, tmp_path, monkeypatch):
    """The same run in a folder of its own, with no scores, and shards so small that it will have some."""
    monkeypatch.setattr(ScoreStore.__init__, "__defaults__", (10,))
    run = local.save(tmp_path / "alone")
    shutil.rmtree(run.folder.path / "scores")
    return run


def scores_of(run):
    """Every stored score, as this machine finds it."""
    folder = run.folder.path / "scores"
    refresh(folder)
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


class OnAnotherMachine:
    """An engine whose workers have a cache of their own, and so another copy of what is at a URL."""

    def __init__(self, on, tmp_path):
        self.on, self.there = on, tmp_path / "there"

    def run(self, task, shards, loaded=None):
        for place, shard in enumerate(shards):
            self.on("there")
            assert local_path(shard.root).is_relative_to(self.there)
            task.work(loaded or task.load(), shard)
            self.on("here")
            yield place


def test_workers_on_another_machine_put_a_share_to_the_url(alone, tmp_path, on):
    on("here")
    url = f"file://{tmp_path}/place/mine"
    alone.save(url)
    run = load_run(url)
    engine = ShareEngine(Share(1, 1), run.folder.shares, OnAnotherMachine(on, tmp_path), "")
    assert not read_share(run, "test", ["cross"], "joint", Budget(), 100, engine)
    assert run.folder.merge() > 0
    alone.evaluate(tiers=["cross"])
    assert scores_of(run) == scores_of(alone)


@pytest.mark.slow
class TestBucket(RunAtUrlContract):
    @pytest.fixture
    def url(self, s3):
        return f"s3://{s3.bucket()}/runs/mine"

    def test_shares_are_scored_and_merged_there(self, alone, url, on, monkeypatch, capsys):
        on("here")
        alone.save(url)
        for number in (1, 2):
            on(f"machine {number}")
            assert call(monkeypatch, capsys, "evaluate", url, "--tiers", "cross", "--shard", f"{number}/2")[0] == 0
        on("there")
        code, printed = call(monkeypatch, capsys, "merge", url)
        assert (code, "new pairs in" in printed.out) == (0, True), printed.err
        alone.evaluate(tiers=["cross"])
        assert len(scores_of(alone)) > 3
        assert scores_of(load_run(url)) == scores_of(alone)

    @pytest.mark.usefixtures("forked_workers")
    def test_a_worker_scores_into_it_what_this_process_scores_into_a_folder(self, alone, url, on, monkeypatch):
        monkeypatch.setattr(ScoreStore.__init__, "__defaults__", (1024,))  # one shard, so that one worker starts
        on("here")
        alone.save(url)
        alone.evaluate(tiers=["cross"])
        monkeypatch.setattr(FileShard, "keep", lambda *_: pytest.fail("a shard was scored in this process"))
        with LocalEngine(2) as engine:
            load_run(url).evaluate(tiers=["cross"], engine=engine)
        on("there")
        assert len(scores_of(alone)) == 2  # a shard and the manifest
        assert scores_of(load_run(url)) == scores_of(alone)

    def test_credentials_that_fail_are_a_sentence(self, s3, url, monkeypatch, capsys):
        with s3.checking_credentials():
            code, printed = call(monkeypatch, capsys, "predict", url, "aspirin", "treats")
        assert code == 2
        assert "is refused: " in printed.err
        assert "Check the credentials (AWS_ACCESS_KEY_ID" in printed.err


@pytest.fixture(scope="module")
def faults(s3_server, tmp_path_factory):
    """What became of fits that met with faults, the bucket, and the folder with a run that met with none."""
    bucket, folder = s3_server.bucket(), tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        code, printed = finished(meet_with_faults, bucket, folder, errors=folder / "errors")
    assert code == 0, (folder / "errors").read_text()
    return json.loads(printed), bucket, folder


def meet_with_faults(bucket, folder):
    from tests.faults import urls  # its children need what it loads

    urls.main(bucket, folder)


@pytest.mark.slow
class TestFaults:
    def contents(self, url, folder):
        path = RunFolder(url).path
        refresh(path)
        return differences(contents_of(path), contents_of(folder / "plain"))

    def test_a_killed_fit_goes_on_from_other_machines_to_equal_contents(self, s3, faults):
        outcome, bucket, folder = faults
        assert outcome["plain"] == 0
        assert outcome["kills"] >= 2
        assert self.contents(f"s3://{bucket}/killed", folder) == []

    def test_of_two_machines_one_waits_and_finds_the_run_finished(self, s3, faults):
        outcome, bucket, folder = faults
        assert outcome["together"]["codes"] == [0, 0]
        printed = outcome["together"]["printed"]
        assert f"note: s3://{bucket}/together is in use by process" in printed
        assert f"s3://{bucket}/together/tiers/kge is already trained." in printed
        assert self.contents(f"s3://{bucket}/together", folder) == []

    def test_a_bucket_that_vanishes_is_a_sentence_and_nothing_is_lost(self, s3, faults):
        outcome, bucket, folder = faults
        vanished = outcome["vanished"]
        assert vanished["codes"] == [2, 0]
        assert f"error: s3://{bucket}-vanishing/mine" in vanished["printed"]
        assert "is not there: " in vanished["printed"]
        assert "what this machine has of it is kept" in vanished["printed"]
        assert f"s3://{bucket}-vanishing/mine is empty now. What this machine had of it is kept in" in vanished["again"]
        assert (next((folder / "vanishing").glob("urls/*/removed-*")) / "graph" / "train.parquet").exists()
        assert self.contents(f"s3://{bucket}-vanishing/mine", folder) == []
