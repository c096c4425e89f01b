"""A progress bar for long operations, shown on standard error if that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_is_showing = ContextVar("a progress bar is on the screen", default=False)


class Advance(Protocol):
    """Tells the bar how many steps were done since the last call, and which note to show next to it."""

    def __call__(self, steps: int, note: str = "") -> None:
        """Advance the bar."""
        ...


@contextmanager
def progress(description: str, total: int, unit: str = "", done: int = 0) -> Iterator[Advance]:
    """Yield the function that advances the bar; `unit="bytes"` shows sizes and speed instead of counts."""
    if _is_showing.get() or not sys.stderr.isatty():  # one bar at a time: the outermost tells the most
        yield lambda steps, note="": None
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    ]
    before = _is_showing.set(True)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(description, total=total, completed=done, note="")
            yield lambda steps, note="": bar.update(task, advance=steps, note=note)
    finally:
        _is_showing.reset(before)


@contextmanager
def no_progress() -> Iterator[None]:
    """Show no bars within the block, because several processes on one terminal would overwrite each other's."""
    before = _is_showing.set(True)
    try:
        yield
    finally:
        _is_showing.reset(before)
