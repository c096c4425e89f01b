"""What people are shown: the events of long calls, one progress bar, and tables for notebooks."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Protocol

from cascader.errors import StorageError

logger = logging.getLogger(__name__)
_is_showing = ContextVar("a progress bar is on the screen", default=False)


@dataclass(frozen=True)
class Event:
    """One thing that happened: `kind` is for programs, `text` and the table are for people.

    >>> print(Event("trained", "Trained 3 epochs in 1 s."))
    Trained 3 epochs in 1 s.
    """

    kind: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        lines = ["  ".join(row) for row in self.rows]
        return "\n".join([self.text, *lines])

    def as_dict(self) -> dict[str, Any]:
        """The event, ready for JSON."""
        return asdict(self)


Listener = Callable[[Event], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("who listens to events", default=())


def emit(kind: str, text: str, columns: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()) -> None:
    """Tell everyone who listens; where nobody does, a notebook shows the event and a log records it."""
    event = Event(kind, text, tuple(columns), tuple(tuple(row) for row in rows))
    listeners = _listeners.get() or (_by_default,)
    for listener in listeners:
        listener(event)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Let `listener` hear all events of the block, beside those who listen already; None hears nothing."""
    before = _listeners.set((*_listeners.get(), listener) if listener else _listeners.get())
    try:
        yield
    finally:
        _listeners.reset(before)


def log_to(path: Path) -> Listener:
    """A listener that appends every event to a file, one JSON object per line."""

    def write(event: Event) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event.as_dict()}, ensure_ascii=False) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:  # an error of writing does not name the file
            raise StorageError(f"cannot write {path}: {error.strerror or error}.") from error

    return write


def _by_default(event: Event) -> None:
    if "ipykernel" in sys.modules:
        sys.stdout.write(f"{event}\n")
    else:
        logger.info("%s", event.text)


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


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table as HTML, every cell escaped.

    >>> html_table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
