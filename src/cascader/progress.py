"""One progress bar for everything that takes long: on a terminal only, and on standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(description: str, total: int, unit: str = "", done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of steps done since its last call.

    `unit="bytes"` shows sizes and a transfer speed instead of counts.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
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

    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    columns = [TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda steps: bar.advance(task, steps)
