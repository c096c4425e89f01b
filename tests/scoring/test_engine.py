"""The local engine: in this process, and in others that may die, be interrupted, or lose their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cascader.errors import EngineError, SettingsError
from cascader.scoring.engine import Call, LocalEngine, Task
from tests.contracts import EngineContract
from tests.scoring.work import divide, kill_itself, load, loadings, note_threads, sleep_long, writing

ROOT = Path(__file__).parents[2]


class TestInThisProcess(EngineContract):
    def make(self):
        return LocalEngine()

    def test_what_is_loaded_already_is_not_loaded_again(self, engine, tmp_path):
        assert list(engine.run(writing(tmp_path), list("ab"), loaded="at hand")) == [0, 1]
        assert loadings(tmp_path) == []
        assert (tmp_path / "done-a").read_text() == "at hand\n"


@pytest.mark.slow
class TestInTwoProcesses(EngineContract):
    def make(self):
        return LocalEngine(processes=2)

    def test_each_worker_loads_once_however_many_runs_there_are(self, engine, tmp_path):
        for _ in range(3):
            list(engine.run(writing(tmp_path), list("abcdef")))
        assert len(loadings(tmp_path)) == len(set(loadings(tmp_path))) == 2
        assert str(os.getpid()) not in loadings(tmp_path)

    def test_no_more_workers_than_shards_are_started(self, engine, tmp_path):
        list(engine.run(writing(tmp_path), ["a"]))
        assert len(loadings(tmp_path)) == 1

    def test_a_worker_that_is_killed_is_an_error_and_the_next_run_goes_on(self, engine, tmp_path):
        killing = Task(Call(kill_itself), Call(load, (tmp_path, "model")))
        with pytest.raises(
            EngineError, match=r"died \(exit code -9\).*Finished shards are stored: the same command resumes"
        ):
            list(engine.run(killing, list("abc")))
        assert sorted(engine.run(writing(tmp_path), list("abc"))) == [0, 1, 2]

    def test_a_worker_that_died_between_runs_is_an_error_too(self, engine, tmp_path):
        list(engine.run(writing(tmp_path), list("ab")))
        (victim, *_) = set(loadings(tmp_path))
        os.kill(int(victim), signal.SIGKILL)
        wait_until(lambda: not is_running(int(victim)))
        with pytest.raises(EngineError, match=f"worker process {victim} died"):
            list(engine.run(writing(tmp_path), list("ab")))

    def test_a_bug_arrives_with_its_traceback(self, engine, tmp_path):
        with pytest.raises(EngineError, match="(?s)Traceback.*ZeroDivisionError"):
            list(engine.run(Task(Call(divide), Call(load, (tmp_path, "model"))), [0]))

    def test_who_wants_no_more_leaves_no_workers(self, engine, tmp_path):
        run = engine.run(Task(Call(sleep_long, (tmp_path,)), Call(load, (tmp_path, "model"))), ["", "long"])
        next(run)
        run.close()
        assert not any(is_running(int(pid)) for pid in loadings(tmp_path))

    def test_the_cores_are_shared_and_our_own_setting_stays(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
        monkeypatch.setenv("OMP_NUM_THREADS", "16")
        with LocalEngine(processes=2) as engine:
            list(engine.run(Task(Call(note_threads, (tmp_path,)), Call(load, (tmp_path, "model"))), ["a"]))
        assert (tmp_path / "threads").read_text() == "3 3"
        assert os.environ["OMP_NUM_THREADS"] == "16"
        assert "MKL_NUM_THREADS" not in os.environ

    def test_work_that_cannot_leave_this_process_is_refused(self, engine):
        with pytest.raises(SettingsError, match="cannot be rebuilt in another process, but processes is 2"):
            engine.run(Task(Call(print), load=None), ["a"])


def test_no_processes_at_all():
    with pytest.raises(SettingsError, match="processes is 0, expected at least 1"):
        LocalEngine(processes=0)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_however_the_engine_ends_no_worker_outlives_it(tmp_path, sent):
    code = (
        "import signal\nfrom pathlib import Path\nfrom cascader.scoring.engine import Call, LocalEngine, Task\n"
        "from tests.scoring.work import load, sleep_long\n"
        # Where the tests themselves run in the background of a shell, their children would ignore an interrupt.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "task = Task(Call(sleep_long, (folder,)), Call(load, (folder, 'model')))\n"
        "list(LocalEngine(processes=2).run(task, ['long', 'longer']))\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(tmp_path.glob("asleep-*"))) == 2)
    workers = [int(pid) for pid in loadings(tmp_path)]
    assert all(is_running(pid) for pid in workers)
    engine.send_signal(sent)
    _, errors = engine.communicate(timeout=60)
    wait_until(lambda: not any(is_running(pid) for pid in workers))
    assert errors.count("Traceback") == (1 if sent == signal.SIGINT else 0)  # our own, and none of the workers'


def is_running(pid):
    """Whether it works still: what nobody has waited for is listed, but dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
