"""A case: an input and what is done with it; and its outcome: an answer, a sentence, or what must not be."""

import io
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from cascader.cli import main
from tests.fuzz.sandbox import Sandbox

Kind = Literal["ok", "sentence", "traceback", "hang", "outside", "code", "packet"]
GOOD: tuple[Kind, ...] = ("ok", "sentence")
_BAD_INPUT = 2


class Case(Protocol):
    """An input and what is done with it; its text says how to repeat it by hand."""

    def prepare(self, folder: Path) -> None:
        """Write the input to the case's folder."""

    def perform(self, folder: Path) -> str:
        """Do it. Return the sentence that refused it, or nothing if it was answered; anything else raises."""


class UnexpectedError(Exception):
    """Neither an answer nor a sentence: an exit code that nobody explained, a reply that is none."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended; outcomes with the same signature have the same reason."""

    kind: Kind
    detail: str = ""
    signature: str = ""

    @property
    def is_good(self) -> bool:
        """Whether this is how cases may end."""
        return self.kind in GOOD


def outcome_of(case: Case, sandbox: Sandbox) -> Outcome:
    """Prepare and perform a case under watch."""
    folder = sandbox.emptied()
    case.prepare(folder)
    problem, sentence = None, ""
    with sandbox.watched() as guard:
        try:
            sentence = case.perform(folder)
        except Exception as error:  # whatever it is, it is what we are looking for
            problem = error
    if guard.offenses:
        kind, detail = guard.offenses[0]
        return Outcome(kind, detail, f"{kind} {detail.partition('(')[0]} {_shape(detail)}"[:120])
    if problem is not None:
        return Outcome("traceback", "".join(traceback.format_exception(problem)), _where(problem))
    return Outcome("sentence", sentence, _shape(sentence)) if sentence else Outcome("ok")


def _where(error: Exception) -> str:
    """The type of an error, and the last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/cascader/" in frame.filename and "site-packages" not in frame.filename]
    last = (ours or list(frames))[-1]
    place = last.filename.rpartition("/cascader/")[2]
    said = _shape(str(error))[:80] if isinstance(error, UnexpectedError) else ""
    return f"{type(error).__name__} {place}:{last.lineno} {said}".rstrip()


def _shape(sentence: str) -> str:
    """A sentence without what it quotes and counts, so that two of the same kind are equal."""
    words = re.sub(r"'.*'|\".*\"|\S*/(?=\S)|\w*\d\w*", "…", sentence, flags=re.DOTALL)
    return " ".join(words.split())[:200]


@dataclass(frozen=True)
class CommandLine:
    """A command, called with files beside it."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"cascader {' '.join(map(repr, self.arguments))}"

    def prepare(self, folder: Path) -> None:
        """Write the files."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def perform(self, folder: Path) -> str:
        """Run the command in this process, as its entry point does."""
        code, _, err = called(self.arguments)
        if code == 0:
            return ""
        sentence = err.strip().splitlines()[-1:] or [""]
        if code != _BAD_INPUT or not sentence[0] or "Traceback (most recent" in err:
            raise UnexpectedError(f"exit code {code}, and on standard error: {err[-1000:]!r}")
        return sentence[0]


def called(arguments: tuple[str, ...]) -> tuple[object, str, str]:
    """Run a command line; return its exit code and what it wrote to standard output and standard error."""
    with _captured() as (out, err):
        before, sys.argv = sys.argv, ["cascader", *arguments]
        code: object = None
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = before
    return code, out(), err()


@contextmanager
def _captured():
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]

    def read(stream):
        stream.flush()
        return stream.buffer.getvalue().decode(errors="replace")

    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        yield (lambda: read(streams[0])), (lambda: read(streams[1]))
