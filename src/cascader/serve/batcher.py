"""One thread computes, and answers together whatever is waiting for it."""

import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cascader.errors import CascaderError


class BusyError(CascaderError):
    """Too many questions are waiting, or the server is shutting down."""


class LateError(CascaderError):
    """An answer took longer than a client may wait."""


@dataclass(frozen=True)
class Batching:
    """How questions of different clients are grouped."""

    window_seconds: float = 0.003  # how long the first one waits for others
    most: int = 64  # questions in one block
    block_seconds: float = 1.0  # predicted time of one block, which other clients have to wait for


@dataclass(eq=False)
class _Waiting:
    key: Hashable
    item: Any
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """Collects items from many threads, and lets `work` answer those with the same key as one block.

    `work(key, items)` returns an answer for each item, in order; `most(key)` limits how many it gets at once.
    """

    def __init__(
        self,
        work: Callable[[Any, list[Any]], Sequence[Any]],
        most: Callable[[Any], int],
        batching: Batching,
        waiting: int,
    ) -> None:
        self._work, self._most, self._batching = work, most, batching
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(waiting)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def submit(self, key: Hashable, item: object) -> Future[Any]:
        """Queue an item; cancel the future if the answer is no longer wanted."""
        if self._is_closing.is_set():
            raise _closing_error()
        waiting = _Waiting(key, item)
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise BusyError(
                f"{self._queue.maxsize:,} questions are waiting already, which is the limit. Try again in a second."
            ) from None
        return waiting.future

    def close(self) -> None:
        """Finish the current block and refuse the rest."""
        self._is_closing.set()
        with suppress(queue.Full):  # then the thread has something to wake up for
            self._queue.put_nowait(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            for key, group in _grouped(self._gather()):
                self._answer(key, group)
        while not self._queue.empty():
            waiting = self._queue.get_nowait()
            if waiting is not None and waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(_closing_error())

    def _gather(self) -> list[_Waiting]:
        """Wait for an item, and take all that arrive within the window."""
        found = [self._queue.get()]
        end = time.monotonic() + self._batching.window_seconds
        while len(found) < self._batching.most:
            try:
                found.append(self._queue.get(timeout=max(end - time.monotonic(), 0.0)))
            except queue.Empty:
                break
        return [waiting for waiting in found if waiting is not None]

    def _answer(self, key: Hashable, group: list[_Waiting]) -> None:
        size = self._most(key)
        for start in range(0, len(group), size):
            wanted = [w for w in group[start : start + size] if w.future.set_running_or_notify_cancel()]
            if wanted:
                self._answer_block(key, wanted)

    def _answer_block(self, key: Hashable, block: list[_Waiting]) -> None:
        try:
            answers = self._work(key, [waiting.item for waiting in block])
        except Exception as error:
            if len(block) == 1:
                block[0].future.set_exception(error)
                return
            for waiting in block:  # one bad question must not spoil the others
                self._answer_block(key, [waiting])
            return
        for waiting, answer in zip(block, answers, strict=True):
            waiting.future.set_result(answer)


def _closing_error() -> BusyError:
    return BusyError("the server is shutting down. Try again when it is back.")


def _grouped(waiting: list[_Waiting]) -> Iterator[tuple[Hashable, list[_Waiting]]]:
    """Group by key, in the order in which the keys first came."""
    groups: dict[Hashable, list[_Waiting]] = {}
    for each in waiting:
        groups.setdefault(each.key, []).append(each)
    yield from groups.items()
