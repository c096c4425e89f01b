"""What people are shown: the events of long calls, one progress bar, and tables for notebooks."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cascader.durations import format_duration
from cascader.errors import StorageError

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

logger = logging.getLogger(__name__)
_is_showing = ContextVar("a progress bar is on the screen", default=False)
_stage = ContextVar("the stage of the work", default="")
#: Kinds of events for those who want to know more: all settings, and every validation.
_DETAILS = ("settings", "validated")
LogFormat = Literal["text", "json"]


@dataclass(frozen=True)
class Event:
    """One thing that happened: `kind` and `values` are for programs, `text` and the table are for people.

    `stage` is the tier that it is about, or empty.

    >>> print(Event("trained", "Trained 3 epochs in 1 s."))
    Trained 3 epochs in 1 s.
    """

    kind: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    stage: str = ""
    values: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        table = [self.columns, *self.rows] if self.rows else []
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
        return "\n".join([self.text, *lines])

    @property
    def is_detail(self) -> bool:
        """Whether it is for those who want to know more."""
        return self.kind in _DETAILS

    def as_dict(self) -> dict[str, Any]:
        """The event, ready for JSON."""
        return asdict(self)


Listener = Callable[[Event], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("who listens to events", default=())


def emit(
    kind: str,
    text: str,
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    values: Mapping[str, float] | None = None,
) -> None:
    """Tell everyone who listens; where nobody does, a notebook shows the event and a log records it."""
    event = Event(kind, text, tuple(columns), tuple(tuple(row) for row in rows), _stage.get(), dict(values or {}))
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


@contextmanager
def recording(listener: Listener) -> Iterator[None]:
    """Let `listener` keep all events of the block; whoever would be shown them without it still is."""
    others = _listeners.get() or (_by_default,)
    before = _listeners.set((*others, listener))
    try:
        yield
    finally:
        _listeners.reset(before)


@contextmanager
def only(*kinds: str) -> Iterator[None]:
    """Let those who listen hear nothing but these kinds of events; what the block records, it records in full."""
    heard = tuple(_of_kinds(listener, kinds) for listener in _listeners.get() or (_by_default,))
    before = _listeners.set(heard)
    try:
        yield
    finally:
        _listeners.reset(before)


def _of_kinds(listener: Listener, kinds: Sequence[str]) -> Listener:
    return lambda event: listener(event) if event.kind in kinds else None


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say of which tier the events and bars of the block are."""
    before = _stage.set(name)
    try:
        yield
    finally:
        _stage.reset(before)


def log_to(path: Path, form: LogFormat = "json") -> Listener:
    """A listener that appends every event to a file: one JSON object per line, or the time and the text."""

    def write(event: Event) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(log_line(event, form) + "\n")
        except OSError as error:  # an error of writing does not name the file
            raise StorageError(f"cannot write {path}: {error.strerror or error}.") from error

    return write


def log_line(event: Event, form: LogFormat) -> str:
    """An event as a line of a log; as text it may have a table below."""
    if form == "json":
        return json.dumps({"time": round(time.time(), 3), **event.as_dict()}, ensure_ascii=False)
    text = "".join(each if each.isprintable() or each == "\n" else " " for each in str(event))
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}"


def _by_default(event: Event) -> None:
    if _in_notebook():
        if event.kind != "progress" and not event.is_detail:
            sys.stdout.write(f"{event}\n")
    else:
        logger.info("%s", event.text)


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs us; that ipykernel is loaded proves nothing, since anyone may import it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__module__.startswith("ipykernel")


class Advance(Protocol):
    """Tells the bar how many steps were done since the last call, and which note to show next to it."""

    def __call__(self, steps: int, note: str = "") -> None:
        """Advance the bar."""
        ...


@contextmanager
def progress(description: str, total: int, unit: str = "", done: int = 0) -> Iterator[Advance]:
    """Yield the function that advances the bar; `unit="bytes"` shows sizes and speed instead of counts.

    A terminal has a bar, and a notebook, too. Where there is neither, a line is reported every half minute.
    """
    if _is_showing.get():  # one bar at a time: the outermost tells the most
        yield lambda steps, note="": None
        return
    described = ": ".join(filter(None, (_stage.get(), description)))
    before = _is_showing.set(True)
    try:
        if sys.stderr.isatty():
            with _terminal_bar(described, total, unit, done) as advance:
                yield advance
        else:
            meter = (_NotebookBar if _in_notebook() else _Lines)(described, total, unit, done)
            yield meter.advance
            meter.close()
    finally:
        _is_showing.reset(before)


@contextmanager
def _terminal_bar(description: str, total: int, unit: str, done: int) -> Iterator[Advance]:
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done, note="")
        yield lambda steps, note="": bar.update(task, advance=steps, note=note)


class _Lines:
    """Reports how far something is as an event, the first time after half a minute."""

    seconds_between = 30.0

    def __init__(self, description: str, total: int, unit: str, done: int) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._before = self._done = done
        self._started = self._shown = time.monotonic()

    def advance(self, steps: int, note: str = "") -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._shown >= self.seconds_between:
            self._shown = now
            self.show(self._text(now, note))

    def show(self, text: str) -> None:
        emit("progress", text, values={"done": self._done, "total": self._total})

    def close(self) -> None:
        """A line that ends is followed by what came of it."""

    def _text(self, now: float, note: str) -> str:
        counts = f"{self._description}: {self._done:,} of {self._total:,} {self._unit}".rstrip()
        return ", ".join(filter(None, (counts, self._left(now), note)))

    def _left(self, now: float) -> str:
        new = self._done - self._before
        rest = (self._total - self._done) * (now - self._started) / new if new else 0.0
        return f"about {format_duration(rest)} left" if rest else ""


class _NotebookBar(_Lines):
    """A line of text that is replaced in place, once something takes longer than a moment."""

    seconds_between = 0.5
    _WIDTH = 30
    _handle: "DisplayHandle | None" = None

    def show(self, text: str) -> None:
        from IPython.display import display

        full = round(self._WIDTH * min(self._done / max(self._total, 1), 1.0))
        shown = {"text/plain": f"{'█' * full}{'░' * (self._WIDTH - full)} {text}"}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown, raw=True)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Leave what was done, and how long it took."""
        if self._handle is not None:
            took = format_duration(time.monotonic() - self._started)
            self.show(f"{self._description}: {self._done:,} {self._unit}, {took}")


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
