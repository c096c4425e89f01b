"""Ray's engine on a cluster of three nodes, whose workers, nodes and drivers are killed: the same bytes in the end."""

import json
import os
import platform
import shutil
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cascader
from cascader.errors import DataError, EngineError, MissingExtraError, SettingsError, StorageError
from cascader.models.readers import reading_with
from cascader.models.text.base_model import load_base_model
from cascader.models.text.reading import FrozenLayers
from cascader.models.text.text_model import Tokens
from cascader.runs import every_question
from cascader.runs.folder import load_scorer
from cascader.scoring import ScoreStore, ray_address, ray_engine
from cascader.scoring.engine import Call, LocalEngine, Task
from cascader.scoring.ray_engine import RayEngine, Worker
from cascader.scoring.shares import Share, ShareEngine
from cascader.storage import LOCK, sha256_of, versions_of
from tests.contracts import EngineContract
from tests.processes import command, finished
from tests.scoring.work import die_once, divide, kill_itself, load, loadings, note_threads, writing

ROOT = Path(__file__).parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class TestBadInput:
    @pytest.fixture(autouse=True)
    def _ray(self):
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'cascader[ray]'")

    def error(self, tmp_path, address):
        with pytest.raises(EngineError) as refused:
            list(RayEngine(address).run(writing(tmp_path), ["a"]))
        return str(refused.value)

    def test_an_address_where_nobody_answers(self, tmp_path):
        message = self.error(tmp_path, "127.0.0.1:1")
        assert message.startswith(
            "no Ray cluster answers at 127.0.0.1:1: Connection refused. Check the address, or start"
        )

    def test_the_address_of_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:2")
        assert "no Ray cluster answers at 127.0.0.1:2" in self.error(tmp_path, None)

    @pytest.mark.parametrize(
        ("answer", "found"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it answered b'HTTP/1.1 ', not in gRPC"),
            (b"", "it closed the connection"),
            (None, "it has not answered for 0 seconds"),
        ],
    )
    def test_an_address_where_something_else_listens(self, tmp_path, monkeypatch, answer, found):
        monkeypatch.setattr(ray_address, "_SECONDS_TO_ANSWER", 0.3)
        monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray tries for many minutes"))
        with listening(answer) as address:
            assert self.error(tmp_path, address) == (
                f"what listens at {address} is no head of a Ray cluster: {found}. Expected the address that `ray start "
                "--head` prints, usually with port 6379 (8265 is that of the dashboard). Check the address."
            )

    def test_behind_tls_only_ray_can_tell(self, monkeypatch):
        monkeypatch.setenv("RAY_USE_TLS", "1")
        with listening(b"\x15\x03\x01\x00\x02\x02\x46\x00\x00") as address:
            RayEngine(address).check_address()

    @pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "http://10.0.0.1:8265", "head", "head:", "head:a"])
    def test_what_is_no_address(self, tmp_path, address):
        assert f"{address!r} is no address of a Ray cluster, expected HOST:PORT" in self.error(tmp_path, address)

    @pytest.mark.parametrize("share", [None, Share(1, 2)])
    def test_scoring_on_a_gpu(self, reading_run, tmp_path, share):
        engine = RayEngine() if share is None else ShareEngine(share, tmp_path, RayEngine(), "")
        run = replace(cascader.load_run(reading_run), device="cuda:0")
        with pytest.raises(SettingsError, match="the device is cuda:0, but Ray's workers ask for CPUs only.*or on the"):
            run.predictor(engine=engine)

    @pytest.mark.parametrize("fitting", [cascader.fit, cascader.reproduce])
    def test_a_fit_on_a_gpu_is_refused_before_it_starts(self, toy, tmp_path, fitting):
        with pytest.raises(SettingsError, match="the device is meta, but Ray's workers ask for CPUs only"):
            fitting(toy, tmp_path / "run", engine=RayEngine(), device=torch.device("meta"))
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("fitting", [cascader.fit, cascader.reproduce])
    def test_a_fit_on_a_cluster_that_does_not_answer_is_refused_before_it_starts(self, toy, tmp_path, fitting):
        with pytest.raises(EngineError, match=r"no Ray cluster answers at 127.0.0.1:1: "):
            fitting(toy, tmp_path / "run", engine=RayEngine("127.0.0.1:1"))
        assert not (tmp_path / "run").exists()

    def test_no_workers(self):
        with pytest.raises(SettingsError, match="workers is 0, expected at least 1"):
            RayEngine(workers=0)


@contextmanager
def listening(answer):
    """A server that gives this answer to whoever connects, and hangs up; None: it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)  # so that it is not reset
                if answer is None:
                    connection.recv(1000)
                else:
                    connection.sendall(answer)

        serving = pool.submit(serve)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        serving.result(timeout=10)


def without_credentials(loaded, shard):
    raise StorageError("there are no credentials for s3://bucket/run")


def test_the_node_is_named_whose_credentials_fail():
    error = Worker(versions_of(["cascader"])).work(Task(Call(without_credentials), load=None), 0, "a")
    assert str(error) == f"on the node {platform.node()}: there are no credentials for s3://bucket/run"


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(ray_engine, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"RayEngine needs Ray. Install it with: pip install 'cascader\[ray\]'"):
        RayEngine()


@pytest.fixture(scope="module")
def cluster():
    """Three nodes with a CPU each, all on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cascader[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def engine_of_all(cluster):
    """One engine for all tests, because workers take a while to start; it leaves a CPU to others."""
    with RayEngine(cluster.address, workers=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def small_shards():
    """A run so small would have one shard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoreStore.__init__, "__defaults__", (5,))
        yield


@pytest.fixture
def copied(reading_run, tmp_path):
    return shutil.copytree(reading_run, tmp_path / "run")


@pytest.fixture(scope="module")
def expected(reading_run, small_shards, tmp_path_factory):
    """What one process writes."""
    return evaluated(shutil.copytree(reading_run, tmp_path_factory.mktemp("alone") / "run"), LocalEngine())


def evaluated(folder, engine):
    """The ranks, and the files of scores."""
    ranks = cascader.load_run(folder).evaluate(engine=engine).ranks.filtered.mean.tolist()
    return ranks, files_of_scores(folder)


def files_of_scores(folder):
    """The sum of every file but the lock, which names a process."""
    paths = [path for path in (folder / "scores").rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): sha256_of(path) for path in sorted(paths)}


def answered(folder, engine):
    """The answers to every question, and the files of scores."""
    run = cascader.load_run(folder)
    return list(run.predictor(engine=engine).answer(every_question(run.kg))), files_of_scores(folder)


@pytest.mark.slow
def test_questions_are_answered_as_one_process_answers_them(copied, small_shards, engine_of_all, tmp_path):
    alone = answered(shutil.copytree(copied, tmp_path / "alone"), LocalEngine())
    assert len(alone[1]) > 3
    assert answered(copied, engine_of_all) == alone


class Disturbed:
    """An engine to which something happens in the middle."""

    def __init__(self, engine, disturb, after=2):
        self.engine, self.disturb, self.after = engine, disturb, after

    def run(self, task, shards, loaded=None):
        assert len(shards) > 2 * self.after
        for count, place in enumerate(self.engine.run(task, shards, loaded)):
            if count == self.after:
                self.disturb()
            yield place


class KilledEngine(RayEngine):
    """An engine whose process is killed in the middle."""

    def _run(self, task, shards):
        for count, place in enumerate(super()._run(task, shards)):
            if count == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield place


def drive_until_killed(*words):
    """Run the command line, with small shards, which is killed in the middle."""
    ScoreStore.__init__.__defaults__, ray_engine.RayEngine = (5,), KilledEngine
    command(*words)


@pytest.mark.slow
def test_a_killed_driver_changes_no_byte_when_it_is_started_again(copied, expected, cluster, engine_of_all):
    options = ["evaluate", str(copied), "--engine", "ray", "--address", cluster.address, "--processes", "1"]
    code, printed = finished(drive_until_killed, *options)
    assert code == -signal.SIGKILL, printed
    (manifest,) = copied.rglob("manifest.json")
    (job,) = json.loads(manifest.read_text())["jobs"]
    assert (job["is_open"], len(job["shards"])) == (True, 2)
    assert evaluated(copied, engine_of_all) == expected


@pytest.mark.slow
def test_a_killed_worker_changes_no_byte(copied, expected, engine_of_all):
    import ray

    assert evaluated(copied, Disturbed(engine_of_all, lambda: ray.kill(engine_of_all._idle[-1]))) == expected


@pytest.mark.slow
def test_a_killed_node_changes_no_byte(copied, expected, cluster, engine_of_all):
    engine_of_all.workers = 3  # one on each node
    node = next(iter(cluster.worker_nodes))
    assert (
        evaluated(copied, Disturbed(engine_of_all, lambda: cluster.remove_node(node, allow_graceful=False))) == expected
    )
    engine_of_all.workers = 2


@pytest.mark.slow
def test_texts_are_read_as_one_process_reads_them(tiny_model, tmp_path, engine_of_all, monkeypatch):
    monkeypatch.setattr("cascader.models.text.reading.SHARD_TEXTS", 2)
    lower = FrozenLayers(load_base_model(tiny_model), 1)
    tokens, alone = Tokens.of(["a b c", "", "d e f g", "h i"], lower.base, 99), np.arange(4)[:, None]
    with reading_with(engine_of_all, str(tmp_path), "late"):
        found = lower.read(tokens, batches=alone)
    assert torch.equal(found.rows, lower.read(tokens, batches=alone).rows)
    assert engine_of_all._idle == []  # for hours of training, no worker would keep a CPU from others


@pytest.mark.slow
class TestInACluster(EngineContract):
    @pytest.fixture
    def engine(self, engine_of_all):
        return engine_of_all

    def test_each_worker_loads_once_however_many_runs_there_are(self, engine, tmp_path):
        for _ in range(3):
            list(engine.run(writing(tmp_path), list("abcdef")))
        assert len(loadings(tmp_path)) == len(set(loadings(tmp_path))) <= 2
        assert str(os.getpid()) not in loadings(tmp_path)

    def test_a_worker_keeps_to_one_thread(self, engine, tmp_path):
        list(engine.run(Task(Call(note_threads, (tmp_path,)), Call(load, (tmp_path, "model"))), ["a"]))
        assert (tmp_path / "threads").read_text() == "1 1"

    def test_a_bug_arrives_with_its_traceback(self, engine, tmp_path):
        with pytest.raises(EngineError, match="(?s)Traceback.*ZeroDivisionError"):
            list(engine.run(Task(Call(divide), Call(load, (tmp_path, "model"))), [0]))

    def test_the_shard_of_a_worker_that_is_killed_is_given_to_another(self, engine, tmp_path):
        once = Task(Call(die_once, (tmp_path,)), Call(load, (tmp_path, "model")))
        assert sorted(engine.run(once, list("abc"))) == [0, 1, 2]
        assert {path.name for path in tmp_path.glob("done-*")} == {"done-a", "done-b", "done-c"}

    def test_a_shard_that_kills_every_worker_is_an_error(self, engine, tmp_path, monkeypatch):
        monkeypatch.setattr(ray_engine, "_RETRIES", 1)
        with pytest.raises(EngineError, match="2 workers died on the same shard.*Finished shards are stored"):
            list(engine.run(Task(Call(kill_itself), Call(load, (tmp_path, "model"))), ["a"]))

    def test_a_worker_with_another_version_refuses(self, engine, tmp_path, monkeypatch, caplog):
        engine.dismiss()
        monkeypatch.setattr(ray_engine, "versions_of", lambda _: {"cascader": "0.0.9"})
        monkeypatch.setattr(ray_engine, "_SECONDS_UNTIL_NOTE", 0.0)
        caplog.set_level("INFO")
        with pytest.raises(EngineError, match=r"has cascader .*, but this command runs with 0.0.9.*on every node"):
            list(engine.run(writing(tmp_path), ["a"]))
        assert "no CPU of the Ray cluster is free: waiting" in caplog.text

    def test_a_node_without_the_run_says_so(self, engine, tmp_path):
        load_nothing = Call(load_scorer, (tmp_path / "run", "cross", "ab12"))
        with pytest.raises(DataError, match=f"the machine {platform.node()} has no tier 'cross' in {tmp_path}/run"):
            list(engine.run(Task(Call(print), load_nothing), ["a"]))

    def test_work_that_cannot_leave_this_process_is_refused(self, engine):
        with pytest.raises(SettingsError, match="cannot be rebuilt in another process, which Ray's workers are"):
            engine.run(Task(Call(print), load=None), ["a"])
