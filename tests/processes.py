"""Processes that load no libraries: each is forked from one that has loaded them, and has done nothing else.

Loading takes a process three to five seconds, which is longer than what most of them are started for. A process whose
start or end is what a test is about is started as users start it, by `subprocess`.
"""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from cascader.cli import main as cascader_main

ROOT = Path(__file__).parents[1]
#: What the commands load, some of it late.
_LIBRARIES = (
    "cascader.cli.app",
    "cascader.models.embeddings",
    "cascader.models.text",
    "cascader.report",
    "cascader.runs",
    "cascader.serve",
    "matplotlib.backends.backend_svg",
    "pandas",  # by pyarrow, where it is installed
    "pyarrow.csv",
    "pyarrow.parquet",
    "safetensors.numpy",
    "scipy.stats",
    "torch._dynamo",  # by the first optimizer
    "transformers.models.bert.modeling_bert",
)


def forking() -> ForkServerContext:
    """What starts processes that have loaded the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_LIBRARIES, "tests.conftest", __name__])
    with chdir(ROOT):  # where the tests can be imported
        forkserver.ensure_running()
    return context


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let the workers of engines and of trainings be forked, where how they start is not what a test is about."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("cascader.scoring.engine", "cascader.models.parallel"):
            patch.setattr(f"{module}.get_context", lambda _: _Workers())
        yield


class _Workers:
    """A context as engines use one; its processes have the environment that those of `spawn` would have."""

    def __init__(self) -> None:
        self._context = forking()

    def Pipe(self) -> tuple[Connection, Connection]:  # noqa: N802 - as multiprocessing calls it
        return self._context.Pipe()

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> ForkServerProcess:  # noqa: N802
        return self._context.Process(target=_with_environment, args=(dict(os.environ), target, *args), daemon=daemon)


def _with_environment(environment: Mapping[str, str], target: Callable[..., None], *arguments: object) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)


class Forked:
    """A function in a process of its own, here and with this environment; otherwise like `subprocess.Popen`.

    What it prints can be read from `stdout`; errors go to a file, or are printed, too.
    """

    def __init__(self, function: Callable[..., object], *arguments: object, errors: str | Path | None = None) -> None:
        context = forking()
        reader, writer = context.Pipe(duplex=False)
        surroundings = (dict(os.environ), os.getcwd(), writer, errors)  # noqa: PTH109
        self._process = context.Process(target=_become, args=(surroundings, function, arguments))
        self._process.start()
        writer.close()
        self.stdout = io.TextIOWrapper(io.FileIO(os.dup(reader.fileno())), encoding="utf-8")
        reader.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while the process is running."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process is running."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)


def command(*words: object) -> None:
    """Run a command line in this process, which is one of its own."""
    sys.argv = ["cascader", *map(str, words)]
    cascader_main()


def finished(function: Callable[..., object], *arguments: object, errors: str | Path | None = None) -> tuple[int, str]:
    """Run a function in a process of its own; return its exit code, and all that it printed."""
    with Forked(function, *arguments, errors=errors) as process:
        printed = process.stdout.read()
        return process.wait(), printed


def _become(surroundings: tuple[dict[str, str], str, Connection, str | Path | None], function, arguments) -> None:
    """Give a new process what one that a shell starts has, and call the function; what it returns is the exit code."""
    environment, folder, writer, errors = surroundings
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(writer.fileno(), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if errors else 1, 2)
    writer.close()
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: PTH123, SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as in the background of a shell
    sys.exit(function(*arguments))
