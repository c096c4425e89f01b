"""What a long call has to say: one type of event, which a terminal prints, a log file keeps and a notebook shows."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **event.as_dict()}, ensure_ascii=False) + "\n")

    return write


def _by_default(event: Event) -> None:
    if "ipykernel" in sys.modules:
        sys.stdout.write(f"{event}\n")
    else:
        logger.info("%s", event.text)
