"""Shards, the groups of pairs whose scores are computed and stored together, and the engines that work on them.

Each shard has a file of its own, so that any process may do its work, even twice.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from cascader.display import no_progress
from cascader.errors import CascaderError, DataError, EngineError, SettingsError, TrainingError
from cascader.graph import Candidates, FloatArray, IntArray, Queries
from cascader.scoring.scorer import Scorer
from cascader.storage import local_path, read_arrays, write_arrays


@dataclass(frozen=True)
class PairKeys:
    """Numbers the pairs of a graph; in sorted order, the pairs of a question are adjacent.

    >>> numbering = PairKeys(entity_count=5, relation_count=2)
    >>> keys = numbering.of(Queries(np.array([3]), np.array([1]), np.array([False])), Candidates.from_lists([[0, 4]]))
    >>> queries, candidates = numbering.pairs(keys)
    >>> queries.anchors.tolist(), queries.relations.tolist(), candidates.ids.tolist()
    ([3], [1], [0, 4])
    """

    entity_count: int
    relation_count: int

    def __post_init__(self) -> None:
        if 2 * self.relation_count * self.entity_count**2 >= 2**63:
            raise DataError(
                f"{self.entity_count:,} entities with {self.relation_count:,} relations make more pairs than 64 bits "
                "can number. Score without a store."
            )

    def of(self, queries: Queries, candidates: Candidates) -> IntArray:
        """Return the key of each pair; shape (candidates,)."""
        questions = queries.keys(self.entity_count, self.relation_count)
        return questions[candidates.rows] * self.entity_count + candidates.ids

    def pairs(self, keys: IntArray) -> tuple[Queries, Candidates]:
        """Return the pairs that sorted keys stand for, with each question once."""
        questions, starts = np.unique(keys // self.entity_count, return_index=True)
        sided, anchors = np.divmod(questions, self.entity_count)
        queries = Queries(
            anchors=anchors.astype(np.int32),
            relations=(sided % self.relation_count).astype(np.int32),
            predicts_tail=sided >= self.relation_count,
        )
        return queries, Candidates(np.append(starts, len(keys)), (keys % self.entity_count).astype(np.int32))


#: The most pairs in a shard: some seconds of a cross encoder's work. With fewer, a block of questions can keep more
#: workers busy, but each shard costs a file, and has the manifest written again.
SHARD_PAIRS = 1024


@dataclass(frozen=True, eq=False)
class FileShard:
    """A shard whose scores are written to a file: any machine knows it by its root's address and its name there."""

    root: str
    name: str
    keys: IntArray  # (pairs,) ascending

    def keep(self, scores: FloatArray) -> None:
        """Write pairs and scores atomically; equal pairs and scores give equal bytes."""
        path = local_path(self.root) / self.name
        write_arrays(path, {"keys": self.keys.astype(np.int64), "scores": scores.astype(np.float32)})


@dataclass(eq=False)
class MemoryShard:
    """A shard whose scores stay in memory."""

    keys: IntArray
    scores: FloatArray = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def keep(self, scores: FloatArray) -> None:
        """Set the scores."""
        self.scores = scores


def read_shard(path: Path, sha256: str) -> tuple[IntArray, FloatArray]:
    """Read the pairs and scores of a file, checking that it has not changed since it was written."""
    arrays = read_arrays(path, sha256)
    keys, scores = (arrays.get(name, np.empty(0)) for name in ("keys", "scores"))
    kinds, are_numbers = (keys.dtype.name, scores.dtype.name), not np.isnan(scores).any()
    if kinds != ("int64", "float32") or keys.shape != scores.shape or keys.ndim != 1 or not are_numbers:
        raise DataError(f"{path} holds no scores of pairs. Delete it to score them again.")
    return keys, scores


def cut(keys: IntArray, shard_pairs: int) -> list[IntArray]:
    """Cut pairs into as few parts as possible, all of about the same size.

    >>> [len(part) for part in cut(np.arange(10), shard_pairs=4)]
    [4, 3, 3]
    """
    if shard_pairs < 1:
        raise SettingsError(f"shard_pairs is {shard_pairs}, expected at least 1.")
    return np.array_split(keys, -(-len(keys) // shard_pairs)) if len(keys) else []


def score_shard(numbering: PairKeys, scorer: Scorer, shard: FileShard | MemoryShard) -> None:
    """Score a shard's pairs and store the scores, unless any is NaN."""
    queries, candidates = numbering.pairs(shard.keys)
    scores = scorer.score(queries, candidates)
    bad = np.flatnonzero(np.isnan(scores))
    if len(bad):
        row = candidates.rows[bad[0]]
        raise TrainingError(
            f"the model scores {len(bad):,} of {len(scores):,} pairs as NaN, the first: relation "
            f"{queries.relations[row]}, anchor {queries.anchors[row]}, candidate {candidates.ids[bad[0]]}. They are "
            "not stored. Train it again with a lower learning rate."
        )
    shard.keep(scores)


@dataclass(frozen=True)
class Call:
    """A module-level function and plain arguments: all that another process needs to make the same call.

    >>> Call(max, (3,))(5)
    5
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def __call__(self, *more: object) -> Any:  # noqa: ANN401 - whatever the function returns
        """Make the call, with more arguments at the end."""
        return self.function(*self.arguments, *more)


@dataclass(frozen=True)
class Task:
    """The work for every shard, `work(loaded, shard)`, where `loaded` is what `load()` returned, once per process."""

    work: Call
    load: Call | None  # None: another process cannot load what the work needs, so it stays in this one


class Engine(Protocol):
    """Runs a task over shards."""

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the position of each shard once it is done; `loaded` is what this process has already loaded."""
        ...

    def dismiss(self) -> None:
        """End the workers, if there are any; the next run starts new ones."""
        ...


def serve(connection: Connection, threads: int) -> None:
    """Load once, then work on one shard after another until the engine or its process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:  # the user's script may have imported it, and set another number
        sys.modules["torch"].set_num_threads(threads)
    loaded: dict[Call | None, object] = {}
    with no_progress():
        while True:
            try:
                task, place, shard = connection.recv()
            except (EOFError, ConnectionError):
                return
            connection.send(done(task, shard, loaded) or place)


def done(task: Task, shard: object, loaded: dict[Call | None, object]) -> CascaderError | None:
    """Work on a shard, and return the error if there was one."""
    try:
        if task.load is not None and task.load not in loaded:
            loaded.clear()  # two models at a time may not fit in memory
            loaded[task.load] = task.load()
        task.work(loaded.get(task.load), shard)
    except CascaderError as error:
        return error
    except Exception:
        return EngineError(f"a worker failed, which should not happen:\n{traceback.format_exc()}")
    return None


def _end_with_parent() -> None:
    """Exit when the parent is gone: a killed process cannot end its workers."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


#: Read by linear algebra libraries when they are loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class _Worker(NamedTuple):
    process: SpawnProcess
    connection: Connection


class LocalEngine:
    """Runs shards in this process, or in several `processes` that share the cores and live until `close()`.

    >>> from cascader.scoring.engine import Call
    >>> list(LocalEngine().run(Task(Call(print, ("shard",)), load=None), ["a", "b"], loaded="of"))
    shard of a
    shard of b
    [0, 1]
    """

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise SettingsError(f"processes is {processes}, expected at least 1.")
        self.processes = processes
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the position of each shard once it is done."""
        if self.processes == 1:
            return _run_here(task, shards, loaded)
        if task.load is None:
            raise SettingsError(
                f"this work cannot be rebuilt in another process, but processes is {self.processes}. Give a model of "
                "a run and a store with a folder, or set processes to 1."
            )
        return self._run_in_workers(task, shards)

    def _run_in_workers(self, task: Task, shards: Sequence[Any]) -> Iterator[int]:
        waiting = list(enumerate(shards))[::-1]
        try:
            self._start(min(self.processes, len(shards)))
            busy = {}
            for worker in self._workers[: len(shards)]:
                busy[worker.connection] = worker
                _send(worker, (task, *waiting.pop()))
            while busy:
                for connection in wait(list(busy)):
                    worker = busy.pop(connection)  # type: ignore[call-overload]  # wait() returns what it was given
                    place = _answer_of(worker)
                    if waiting:
                        busy[worker.connection] = worker
                        _send(worker, (task, *waiting.pop()))
                    yield place
        except BaseException:  # an interrupt, or a caller that stops early: leave no worker running
            self.close()
            raise

    def _start(self, count: int) -> None:
        threads = _threads_each(self.processes)
        context = get_context("spawn")
        with _environment({name: str(threads) for name in THREADS}):
            while len(self._workers) < count:
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, threads), daemon=True)
                process.start()
                theirs.close()  # otherwise a dead worker's pipe would stay open
                self._workers.append(_Worker(process, ours))

    def close(self) -> None:
        """End the workers for good."""
        self.dismiss()

    def dismiss(self) -> None:
        """End the workers; the next run starts new ones."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []


def _run_here(task: Task, shards: Sequence[Any], loaded: object) -> Iterator[int]:
    if loaded is None and task.load is not None:
        loaded = task.load()
    for place, shard in enumerate(shards):
        task.work(loaded, shard)
        yield place


def _send(worker: _Worker, message: tuple[Task, int, Any]) -> None:
    try:
        worker.connection.send(message)
    except OSError as error:
        raise _died(worker) from error


def _answer_of(worker: _Worker) -> int:
    try:
        answer = worker.connection.recv()
    except (EOFError, OSError) as error:
        raise _died(worker) from error
    if isinstance(answer, CascaderError):
        raise answer
    return int(answer)


def _died(worker: _Worker) -> EngineError:
    worker.process.join()
    return EngineError(
        f"worker process {worker.process.pid} died (exit code {worker.process.exitcode}), perhaps for lack of memory. "
        "Finished shards are stored: the same command resumes from there, and fewer processes need less memory. "
        'In your own script, start under: if __name__ == "__main__".'
    )


def _threads_each(processes: int) -> int:
    """Return the threads per process that keep all cores busy, but no more than the user has allowed."""
    allowed = os.environ.get(THREADS[0], "")
    return max(1, min(cores() // processes, int(allowed) if allowed.isdecimal() else cores()))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for child processes to inherit: in the child itself, it may be too late."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
