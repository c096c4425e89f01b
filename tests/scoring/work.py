"""What the workers of an engine do in the tests.

A worker imports the module of its work, so this one loads nothing that engines do not load themselves.
"""

import os
import secrets
import signal
import time
from pathlib import Path

from cascader.display import _Lines, listening, progress
from cascader.errors import SettingsError
from cascader.models import Frequency
from cascader.scoring.engine import Call, Task


def load(folder: Path, name: str) -> str:
    """Leave a file for every call."""
    (folder / f"loaded-{os.getpid()}-{secrets.token_hex(4)}").touch()
    return name


def loadings(folder: Path) -> list[str]:
    return [path.name.split("-")[1] for path in folder.glob("loaded-*")]


def write(folder: Path, loaded: str, shard: str) -> None:
    """Do work that leaves a file, and records how often it was done."""
    with (folder / f"done-{shard}").open("a") as file:
        file.write(f"{loaded}\n")


def writing(folder: Path, name: str = "model") -> Task:
    return Task(Call(write, (folder,)), Call(load, (folder, name)))


def refuse(loaded: str, shard: str) -> None:
    """Fail with an error that the user can correct."""
    raise SettingsError(f"{loaded} cannot do {shard}")


def kill_itself(loaded, shard):
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(folder, loaded, shard):
    if shard == "b" and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"done-{shard}").touch()


def divide(loaded, shard):
    return 1 / shard


def sleep_long(folder, loaded, shard):
    if shard:
        (folder / f"asleep-{shard}").touch()
        time.sleep(600)


def note_threads(folder, loaded, shard):
    (folder / "threads").write_text(f"{os.environ['OMP_NUM_THREADS']} {os.environ['MKL_NUM_THREADS']}")


class Showing:
    """A scorer with a bar of its own, as language models have."""

    def __init__(self, kg, heard):
        _Lines.seconds_between = 0.0  # in this process, which may be a worker
        self.frequency, self.heard = Frequency().fit(kg), heard

    def score(self, queries, candidates):
        with listening(self.note), progress("reading pairs", total=len(candidates.ids)) as advance:
            advance(len(candidates.ids))
        return self.frequency.score(queries, candidates)

    def note(self, event):
        with self.heard.open("a") as file:
            file.write(f"{event.text}\n")
