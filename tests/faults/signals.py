"""Signals at random moments."""

import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.contents import contents_of, differences
from tests.faults.processes import Child, Command, ask_without_waiting, questions

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SENTENCE = "what is finished is kept, and the same command goes on from there."
#: A server is never done by itself: it is killed so often, and then asked.
_KILLS_OF_A_SERVER = 3


@dataclass
class Fault:
    """One fault, and what came of it."""

    command: str
    what: str
    moment: str
    ended: str
    folder: str
    is_resumed: bool = False
    is_equal: bool = False


def is_equal(command: Command, folder: Path) -> bool:
    """Whether a folder has the contents of the one that nothing has disturbed; if not, say where."""
    command.undisturbed()
    different = differences(contents_of(folder), contents_of(command.whole))
    if different:
        sys.stderr.write(f"{command.name} in {folder} differs in: {', '.join(different)}\n")
    return not different


def kills_of(command: Command, into: Path, kills: int, draw: random.Random) -> Iterator[Fault]:
    """Send so many signals to a command; a folder that is done before the last is followed by another."""
    seconds = command.undisturbed()
    done = 0
    for number in range(10 * kills):
        if done == kills:
            return
        folder = command.prepare(into / f"killed-{number}")
        faults = _killed(command, folder, seconds, kills - done, draw)
        if not faults:
            shutil.rmtree(folder)
            continue
        command.finish(folder)
        has_equal_contents = is_equal(command, folder)
        done += len(faults)
        for fault in faults:
            fault.is_resumed, fault.is_equal = True, has_equal_contents
            yield fault
    raise AssertionError(f"{command.name} was always done before a signal came.")


def _killed(command: Command, folder: Path, seconds: float, most: int, draw: random.Random) -> list[Fault]:
    """Send signals until the command is done."""
    faults: list[Fault] = []
    most = min(most, _KILLS_OF_A_SERVER) if command.is_server else most
    while len(faults) < most:
        fault = _disturb(command, folder, seconds, draw, was_killed=any(each.what == "SIGKILL" for each in faults))
        if fault is None:
            break
        faults.append(fault)
    return faults


def _disturb(command: Command, folder: Path, seconds: float, draw: random.Random, was_killed: bool) -> Fault | None:
    """Run a command, and send it a signal at a random moment; None if it was done before."""
    moment, number = draw.uniform(0.01, seconds / 2), draw.choice(SIGNALS)
    asked = iter(draw.sample(questions(), len(questions())))

    def ask_on(child: Child) -> None:
        if command.is_server and (question := next(asked, None)):
            ask_without_waiting(child, question)

    child, started = command.begin(folder), time.time()
    code = child.ended(moment, ask_on)
    if code is None:
        code = child.send(number)
    if code == 0 and not command.is_server:
        return None
    if number != signal.SIGKILL:
        _check_end(command, child, code, number)
        left = [path for path in folder.rglob(".*.tmp") if path.stat().st_mtime >= started]
        assert was_killed or not left, f"{command.name}, {number.name} left {left}"
    ended = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return Fault(command.name, number.name, f"{moment:.2f} s of {seconds:.1f} s", ended, folder.name)


def _check_end(command: Command, child: Child, code: int, number: signal.Signals) -> None:
    """A signal that can be heard ends with its exit code and a sentence; a server shuts down instead."""
    printed = child.printed()
    is_shut_down = command.is_server and code == 0
    assert is_shut_down or code == 128 + number, f"{command.name}, {number.name}: ended with {code}\n{printed}"
    assert is_shut_down or f"stopped by {number.name}: {SENTENCE}" in printed, printed
    assert "Traceback" not in printed, printed
