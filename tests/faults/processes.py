"""Commands in processes of their own, and a client for those that serve."""

import json
import os
import re
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cascader.cli import main as cascader_main

_LONGEST_SECONDS = 900


def nothing(*_: object) -> None:
    """Do nothing."""


class Child:
    """A command line in a process of its own; what it prints is appended to a file."""

    def __init__(self, arguments: list[str], log: Path, before: Callable[[], None] = nothing) -> None:
        self._log, self._printed_before = log, log.stat().st_size if log.exists() else 0
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, log, before)

    def printed(self) -> str:
        """What this process has printed so far."""
        return self._log.read_bytes()[self._printed_before :].decode() if self._log.exists() else ""

    def ended(self, seconds: float = _LONGEST_SECONDS, meanwhile: Callable[["Child"], None] = nothing) -> int | None:
        """The exit code, negative for a signal, if it ends within so many seconds; None if it is still running."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            meanwhile(self)
            time.sleep(0.01)
        return None

    def send(self, number: signal.Signals) -> int:
        """Send a signal once the command line hears it, and return the exit code; it must end."""
        while number != signal.SIGKILL and not self._hears_signals():
            if (code := self.ended(0.01)) is not None:
                return code
        os.kill(self.pid, number)
        code = self.ended()
        if code is None:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"{number.name} did not end the process:\n{self.printed()}")
        return code

    def _hears_signals(self) -> bool:
        """Whether the command line has begun, and handles SIGTERM; where /proc is missing, a moment must do."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            time.sleep(0.1)
            return True
        caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)


def _become(arguments: list[str], log: Path, before: Callable[[], None]) -> None:
    """Run the command line in a child, as a shell would; `before` comes first."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as in the background of a shell
    sys.argv = ["cascader", *arguments]
    code = 70
    try:
        before()
        cascader_main()
        code = 0
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:  # the child must never come back into the parent's code
        sys.stdout.flush()
        os._exit(code)


@dataclass
class Command:
    """A command on a folder of its own, which is empty at first or a copy of `start`.

    What it writes where nothing disturbs it is in the folder `whole`, and took so many `seconds`.
    """

    name: str
    arguments: Callable[[Path], list[str]]
    whole: Path
    start: Path | None = None
    is_server: bool = False
    seconds: float | None = None

    def prepare(self, folder: Path) -> Path:
        """Make the folder as it is before the first call."""
        return shutil.copytree(self.start, folder) if self.start else folder

    def undisturbed(self) -> float:
        """Run the command where nothing disturbs it, once, and return the seconds."""
        if self.seconds is None:
            self.seconds = self.finish(self.prepare(self.whole))
        return self.seconds

    def begin(self, folder: Path, before: Callable[[], None] = nothing) -> Child:
        """Start the command."""
        return Child(self.arguments(folder), folder.with_name(f"{folder.name}.log"), before)

    def finish(self, folder: Path) -> float:
        """Run the command to its end, and return the seconds; a server is asked every question, and told to end."""
        started, child = time.monotonic(), self.begin(folder)
        if self.is_server:
            answers = [ask(child, question) for question in questions()]
            code: int | None = child.send(signal.SIGTERM)
            (folder / "answers.json").write_text(json.dumps(answers))
        else:
            code = child.ended()
        assert code == 0, f"{self.name} in {folder} ended with {code}:\n{child.printed()}"
        return time.monotonic() - started


# The client of a server.


def questions() -> list[dict[str, str]]:
    """Every question of the graph of likes."""
    tails = [{"entity": f"abc {a}", "relation": "likes", "side": "tail"} for a in "abcdefgh"]
    return tails + [{"entity": f"xyz {b}", "relation": "likes", "side": "head"} for b in "uvwxyz"]


def ask(child: Child, question: dict[str, str]) -> object:
    """The server's answer, as soon as it serves."""
    until = time.monotonic() + _LONGEST_SECONDS
    while (address := _address(child)) is None:
        assert time.monotonic() < until, child.printed()
        assert os.waitpid(child.pid, os.WNOHANG)[0] == 0, child.printed()
        time.sleep(0.01)
    return _fetch(address, question, timeout=60)


def ask_without_waiting(child: Child, question: dict[str, str]) -> None:
    """Ask if the server serves, and leave after a moment, as clients do."""
    address = _address(child)
    if address is not None:
        try:
            _fetch(address, question, timeout=0.05)
        except (OSError, urllib.error.URLError):
            return


def _fetch(address: str, question: dict[str, str], timeout: float) -> object:
    body, headers = json.dumps(question).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}api/answer", body, headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
        return json.loads(response.read())


def _address(child: Child) -> str | None:
    found = re.search(r"Serving .* at (http://\S+)", child.printed())
    return found[1] if found else None
