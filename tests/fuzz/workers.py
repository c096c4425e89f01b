"""Processes that perform batches: one that hangs or crashes is ended and replaced, and its case is a failure."""

import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.fuzz.case import Case, Outcome
from tests.fuzz.engine import Batch, Cases, Failure, fuzz, keep
from tests.fuzz.sandbox import Sandbox

HANG_SECONDS = 20.0
#: What a case may allocate on top of the libraries: one that wants more fails, instead of the machine.
_MEMORY_BYTES = 16 << 30
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Job:
    """A batch and where its worker finds what it needs and leaves what it finds."""

    batch: Batch
    material: Path
    failures: Path


@dataclass(frozen=True)
class Ended:
    """A case has ended."""

    batch: Batch
    outcome: Outcome


@dataclass(frozen=True)
class Found:
    """A failure of a new kind, and where its input is kept."""

    batch: Batch
    outcome: Outcome
    kept: Path


#: What is heard of workers: a job by itself is over.
News = Ended | Found | Job


@dataclass
class _Worker:
    """A process, the batch that it performs, and the case that it is at."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    root: Path
    job: Job | None = None
    case: str = ""
    since: "_Moment" = field(default_factory=lambda: _Moment(0, 0))  # when the case began
    progress: "_Moment" = field(default_factory=lambda: _Moment(0, 0))  # when it was last seen to work

    def begin(self, case: str) -> None:
        """Note which case it is at from now on."""
        self.case, self.since = case, _Moment.of(self.process)
        self.progress = self.since

    @property
    def is_hanging(self) -> bool:
        """Whether its case takes too long: by its own work, or by waiting for what does not come.

        On a busy machine, a process that could work does not get to: that is no fault of its case.
        """
        if not (self.job and self.case and self.process.is_alive()):
            return False
        now = _Moment.of(self.process)
        if now.busy > self.progress.busy or not now.is_waiting:
            self.progress = now
        return now.busy - self.since.busy > HANG_SECONDS or now.clock - self.progress.clock > HANG_SECONDS


@dataclass(frozen=True)
class _Moment:
    """A process at a time: how long it has worked, in seconds, and whether it waits."""

    clock: float
    busy: float
    is_waiting: bool = False

    @classmethod
    def of(cls, process: multiprocessing.process.BaseProcess) -> "_Moment":
        """The process as it is now; one that has just died waits."""
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return cls(time.monotonic(), 0.0, is_waiting=True)
        ticks = int(fields[11]) + int(fields[12])
        return cls(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), fields[0] in "SD")


def perform(jobs: Iterator[Job], root: Path, processes: int, until: float) -> Iterator[News]:
    """Perform jobs in some processes; tell how each case ended, and which jobs did. None begins after `until`."""
    workers = [_started(root / f"worker-{number}") for number in range(processes)]
    try:
        for worker in workers:
            _give(worker, jobs, until)
        while any(worker.job for worker in workers):
            for worker in workers:
                is_dead = not worker.process.is_alive()  # asked first: what it has said until then is heard
                yield from _heard(worker, jobs, until)
                if worker.is_hanging or (worker.job and is_dead):
                    yield from _buried(worker)
                    workers[workers.index(worker)] = fresh = _started(worker.root)
                    _give(fresh, jobs, until)
            wait([worker.pipe for worker in workers if worker.job], timeout=0.5)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _started(root: Path) -> _Worker:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(theirs, root), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, root)


def _give(worker: _Worker, jobs: Iterator[Job], until: float) -> None:
    """Give a worker its next job, if there is one."""
    worker.job = next(jobs, None) if time.monotonic() < until else None
    worker.case = ""
    if worker.job is not None:
        worker.pipe.send(worker.job)


def _heard(worker: _Worker, jobs: Iterator[Job], until: float) -> Iterator[News]:
    """Take in what a worker has said."""
    while worker.job is not None and worker.pipe.poll():
        try:
            message = worker.pipe.recv()
        except EOFError:  # it is dead
            return
        if isinstance(message, str):
            worker.begin(message)
        elif isinstance(message, Ended | Found):
            yield message
        else:
            yield worker.job
            _give(worker, jobs, until)


def _buried(worker: _Worker) -> Iterator[News]:
    """End a worker that hangs or has crashed; its case is left in its folder, and kept."""
    assert worker.job is not None
    was_alive = worker.process.is_alive()
    if was_alive:  # it writes where it is
        os.kill(worker.process.pid or 0, signal.SIGUSR1)
        time.sleep(1)
    worker.process.kill()
    worker.process.join()
    stack = (worker.root / "stack.txt").read_text(errors="replace") if (worker.root / "stack.txt").exists() else ""
    detail = f"{worker.case}\n{stack}"
    if was_alive:
        outcome = Outcome("hang", detail, f"hang {_innermost(stack)}")
    else:
        outcome = Outcome("traceback", detail, f"crash {worker.process.exitcode} {_innermost(stack)}")
    batch = worker.job.batch
    yield Ended(batch, outcome)
    yield Found(batch, outcome, keep(worker.job.failures, batch, Failure(_Left(worker), outcome)))
    yield worker.job


def _innermost(stack: str) -> str:
    """The innermost line of ours that a stack has, which is written innermost first."""
    lines = stack.rpartition("Current thread")[2].splitlines()
    ours = (line for line in lines if "/cascader/" in line and "site-packages" not in line)
    return next((line.rpartition("/cascader/")[2] for line in ours), "?")


@dataclass(frozen=True)
class _Left:
    """The case that a worker was at, as far as it has written it down."""

    worker: _Worker

    def __str__(self) -> str:
        return self.worker.case

    def prepare(self, folder: Path) -> None:
        # cp, because it copies pipes and holes as what they are.
        subprocess.run(["cp", "-a", f"{self.worker.root}/cases/case/.", str(folder)], check=False)

    def perform(self, folder: Path) -> str:
        raise NotImplementedError


def _work(pipe: Connection, root: Path) -> None:
    """What a worker does: perform one job after the other, until it is ended."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with (root / "stack.txt").open("w") as stack:
        faulthandler.enable(stack)
        faulthandler.register(signal.SIGUSR1, stack, all_threads=True)
        sandbox = Sandbox(root)
        with sandbox.entered():
            # Both write files and start processes when they are first imported.
            import matplotlib.font_manager  # noqa: F401
            import torch._inductor.runtime.runtime_utils  # noqa: F401

            from tests.fuzz.targets import cases_of

            while True:
                job: Job = pipe.recv()
                _perform(job, pipe, sandbox, cases_of(job.batch.target, job.material))
                pipe.send(None)


def _perform(job: Job, pipe: Connection, sandbox: Sandbox, cases: Cases) -> None:
    def ended(outcome: Outcome) -> None:
        pipe.send(Ended(job.batch, replace(outcome, detail=outcome.detail[:2000])))

    def failed(failure: Failure) -> None:
        pipe.send(Found(job.batch, failure.outcome, keep(job.failures, job.batch, failure)))

    def began(case: Case) -> None:
        pipe.send(str(case)[:5000] or "?")

    for smaller in fuzz(cases, job.batch, sandbox, began, ended, failed):
        keep(job.failures, job.batch, smaller)
