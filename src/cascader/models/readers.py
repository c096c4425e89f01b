"""Who reads texts while a tier is trained, and where what was read is kept until then."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from cascader.scoring.engine import Engine, LocalEngine
from cascader.storage import local_path, remove

#: The folder of a run for what was read for tiers that are being trained.
READING = "reading"


@dataclass(frozen=True)
class Readers:
    """An engine that reads texts, and where its workers write: the address of a run, and a folder there."""

    engine: Engine
    root: str
    folder: str


_readers: ContextVar[Readers | None] = ContextVar("readers", default=None)


@contextmanager
def reading_with(engine: Engine | None, root: str, tier: str) -> Iterator[None]:
    """Let an engine read texts in the block that trains and saves a tier, and keep them in the run until its end.

    If the block fails, they stay: whoever tries again goes on from there.
    """
    readers = Readers(engine or LocalEngine(), root, f"{READING}/{tier}")
    token = _readers.set(readers)
    try:
        yield
    finally:
        _readers.reset(token)
    folder = local_path(root) / readers.folder
    if folder.exists():
        remove(folder)
        with suppress(OSError):  # another tier's are still there
            folder.parent.rmdir()


def current_readers() -> Readers | None:
    """Who reads texts here; None: this process, which keeps nothing."""
    return _readers.get()
