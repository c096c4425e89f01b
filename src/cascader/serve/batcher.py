"""One thread computes: what waits for it is answered together."""

import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cascader.serve.limits import Batching
from cascader.serve.refusals import BusyError


@dataclass(eq=False)
class _Waiting:
    kind: Hashable
    asked: Any
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """Collects what different threads ask, and lets `work` answer what is of one kind as one block.

    `work(kind, asked)` gives an answer for each, in their order. `most(kind)` says how many it may get at once.
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

    def submit(self, kind: Hashable, asked: Any) -> Future[Any]:  # noqa: ANN401 - whatever `work` understands
        """Queue something; who no longer wants the answer cancels the future."""
        if self._is_closing.is_set():
            raise _closing()
        waiting = _Waiting(kind, asked)
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise BusyError(
                f"{self._queue.maxsize:,} questions wait already, which is the limit. Ask again in a second."
            ) from None
        return waiting.future

    def close(self) -> None:
        """Answer what is being answered, and refuse the rest."""
        self._is_closing.set()
        with suppress(queue.Full):  # then nobody waits to be woken
            self._queue.put_nowait(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            for kind, group in _grouped(self._gathered()):
                self._answer(kind, group)
        while not self._queue.empty():
            waiting = self._queue.get_nowait()
            if waiting is not None and waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(_closing())

    def _gathered(self) -> list[_Waiting]:
        """The first that comes, and all that come within the window."""
        found = [self._queue.get()]
        end = time.monotonic() + self._batching.window_seconds
        while len(found) < self._batching.most:
            try:
                found.append(self._queue.get(timeout=max(end - time.monotonic(), 0.0)))
            except queue.Empty:
                break
        return [waiting for waiting in found if waiting is not None]

    def _answer(self, kind: Hashable, group: list[_Waiting]) -> None:
        size = self._most(kind)
        for start in range(0, len(group), size):
            wanted = [w for w in group[start : start + size] if w.future.set_running_or_notify_cancel()]
            if wanted:
                self._answer_block(kind, wanted)

    def _answer_block(self, kind: Hashable, block: list[_Waiting]) -> None:
        try:
            answers = self._work(kind, [waiting.asked for waiting in block])
        except Exception as error:
            if len(block) == 1:
                block[0].future.set_exception(error)
                return
            for waiting in block:  # one bad question must not spoil the others
                self._answer_block(kind, [waiting])
            return
        for waiting, answer in zip(block, answers, strict=True):
            waiting.future.set_result(answer)


def _closing() -> BusyError:
    return BusyError("the server is shutting down. Ask again when it is back.")


def _grouped(waiting: list[_Waiting]) -> Iterator[tuple[Hashable, list[_Waiting]]]:
    """By kind, in the order in which the first of each came."""
    groups: dict[Hashable, list[_Waiting]] = {}
    for each in waiting:
        groups.setdefault(each.kind, []).append(each)
    yield from groups.items()
