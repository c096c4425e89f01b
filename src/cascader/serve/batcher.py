"""One thread computes, in order of arrival, and answers together whatever of the same kind is waiting."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cascader.errors import CascaderError


class BusyError(CascaderError):
    """Too many questions are waiting, or the server is shutting down."""


class LateError(CascaderError):
    """An answer took longer than a client may wait."""


class AbandonedError(CascaderError):
    """Nobody waits for the answer any longer."""


@dataclass(frozen=True)
class Batching:
    """How questions of different clients are grouped."""

    window_seconds: float = 0.003  # how long the first one waits for others
    most: int = 64  # questions in one block
    block_seconds: float = 1.0  # predicted time of one block, which other clients have to wait for


@dataclass(eq=False)
class Job:
    """An item that waits to be worked on, and the future of its answer."""

    key: Hashable
    item: Any
    future: Future[Any] = field(default_factory=Future)
    is_wanted: bool = True

    def abandon(self) -> None:
        """Say that nobody waits for the answer: what has not begun never will, and what has is cut short."""
        self.is_wanted = False
        self.future.cancel()


#: Raises if nobody waits for what is being worked on; to be called between pieces of long work.
Check = Callable[[], None]


class Batcher:
    """Collects items from many threads, and lets `work` answer those with the same key as one block.

    `work(key, items, check)` returns an answer for each item, in order; `most(key)` limits how many it gets at once.
    The item that has waited longest is always in the next block.
    """

    def __init__(
        self,
        work: Callable[[Any, list[Any], Check], Sequence[Any]],
        most: Callable[[Any], int],
        batching: Batching,
        limit: int,
    ) -> None:
        self._work, self._most, self._batching, self._limit = work, most, batching, limit
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition(threading.RLock())
        self._is_stopping = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """The number of items that wait."""
        return len(self._jobs)

    def submit(self, key: Hashable, item: object) -> Job:
        """Queue an item; abandon the job if its answer is no longer wanted."""
        job = Job(key, item)
        with self._changed:
            if self._is_stopping:
                raise _stopping_error()
            if len(self._jobs) >= self._limit:
                raise BusyError(
                    f"{self._limit:,} questions are waiting already, which is the limit. Try again in a second."
                )
            self._jobs.append(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._forget(job))
        return job

    def stop(self) -> None:
        """Refuse everything but the current block."""
        with self._changed:
            self._is_stopping = True
            refused, self._jobs = self._jobs, deque()
            self._changed.notify()
        for job in refused:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(_stopping_error())

    def close(self, seconds: float) -> None:
        """Cut the current block short, and wait so long for the thread to end."""
        self.stop()
        self._is_closed = True
        self._thread.join(seconds)

    def join(self) -> None:
        """Wait for the thread to end, after it was told to stop."""
        self._thread.join()

    def _forget(self, job: Job) -> None:
        with self._changed, suppress(ValueError):  # it waits no longer, as usual
            self._jobs.remove(job)

    def _run(self) -> None:
        while not self._is_stopping:
            self._wait()
            if block := self._next_block():
                self._answer(block[0].key, block)

    def _wait(self) -> None:
        """Wait for an item, and then a moment for others."""
        with self._changed:
            if not self._jobs:
                self._changed.wait_for(lambda: self._jobs or self._is_stopping)
                self._changed.wait_for(self._is_full, self._batching.window_seconds)

    def _is_full(self) -> bool:
        return self._is_stopping or len(self._jobs) >= self._batching.most

    def _next_block(self) -> list[Job]:
        """Take the oldest item with others of its kind; those that everyone has left meanwhile are dropped."""
        with self._changed:
            key = self._jobs[0].key if self._jobs else None
            alike = [job for job in self._jobs if job.key == key]
            block = alike[: self._most(key)] if alike else []
            for job in block:
                self._jobs.remove(job)
        return [job for job in block if job.future.set_running_or_notify_cancel()]

    def _answer(self, key: Hashable, block: list[Job]) -> None:
        try:
            answers = self._work(key, [job.item for job in block], lambda: self._check(block))
        except Exception as error:
            if len(block) == 1 or isinstance(error, AbandonedError):
                for job in block:
                    job.future.set_exception(error)
                return
            for job in block:  # one bad question must not spoil the others
                self._answer(key, [job])
            return
        for job, answer in zip(block, answers, strict=True):
            job.future.set_result(answer)

    def _check(self, block: list[Job]) -> None:
        if self._is_closed or not any(job.is_wanted for job in block):
            raise AbandonedError("the clients who asked have left, or the server has ended.")


def _stopping_error() -> BusyError:
    return BusyError("the server is shutting down. Try again when it is back.")
