"""Fifty signals at random moments and other faults, and a table: `make faults`.

A command that meets with a fault goes on when it is called again, and ends with contents that are equal to those of a
command that nothing has disturbed. For signals to one command, which is given its `--out`:
`python -m tests.faults --folder FOLDER --seed 7 --kills 10 fit GRAPH ...`
"""

import argparse
import json
import os
import random
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Loaded here, once, and not in every child.
import matplotlib.backends.backend_svg  # noqa: F401
import pyarrow.csv
import pyarrow.parquet
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401 - by the first optimizer
from transformers import BertModel, PreTrainedTokenizerFast  # noqa: F401

import cascader.models.embeddings
import cascader.models.text
import cascader.models.training as training
import cascader.runs
import cascader.serve  # noqa: F401
from tests.conftest import make_tiny_model
from tests.faults.commands import all_commands
from tests.faults.processes import Command
from tests.faults.signals import Fault, kills_of
from tests.faults.surroundings import SURROUNDINGS

#: How many of fifty signals each command gets.
SHARES = {"fit": 14, "tune": 6, "evaluate": 7, "predict": 7, "reproduce": 8, "serve": 8}


def counts_of(kills: int, names: list[str]) -> dict[str, int]:
    """Share out the signals; what is left over is for the first command.

    >>> counts_of(7, ["fit", "serve"])
    {'fit': 5, 'serve': 2}
    """
    total = sum(SHARES[name] for name in names)
    counts = {name: kills * SHARES[name] // total for name in names}
    return {**counts, **{name: counts[name] + kills - sum(counts.values()) for name in names[:1]}}


def table(faults: list[Fault]) -> str:
    """One line for each fault, and the sum."""
    lines = [f"{'':>3} {'command':10} {'fault':16} {'moment':>18}  {'ended':9}  {'resumed':7}  equal"]
    for number, fault in enumerate(faults, start=1):
        resumed, equal = ("yes" if is_true else "NO" for is_true in (fault.is_resumed, fault.is_equal))
        start = f"{number:>3} {fault.command:10} {fault.what:16} {fault.moment:>18}"
        lines.append(f"{start}  {fault.ended:9}  {resumed:7}  {equal}")
    good = sum(fault.is_resumed and fault.is_equal for fault in faults)
    return "\n".join([*lines, f"{good} of {len(faults)} faults resumed to equal contents."])


def all_faults(into: Path, kills: int, names: list[str], draw: random.Random) -> Iterator[Fault]:
    """Signals to the commands that are named, and the other faults that are."""
    os.environ["CASCADER_CACHE"] = str(into / "cache")
    commands = all_commands(into, make_tiny_model(str(into / "tiny-model"), layer_count=2))
    for name, count in counts_of(kills, [name for name in SHARES if name in names]).items():
        (into / name).mkdir()
        yield from recorded(name, kills_of(commands[name], into / name, count, draw))
    for name, meet in SURROUNDINGS.items():
        if name in names:
            yield from recorded(name, meet(commands, into, draw))


def recorded(name: str, faults: Iterator[Fault]) -> Iterator[Fault]:
    """The faults; what a command was not expected to do is one that is not equal, and the other commands still run."""
    try:
        yield from faults
    except AssertionError as error:
        sys.stderr.write(f"{name}: {error}\n")
        yield Fault(name, "not as expected", "", "failed", "")


def main(arguments: list[str] | None = None) -> int:
    """Meet with faults, print the table, and return 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where to keep what the commands write")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("CASCADER_TEST_SEED") or secrets.randbelow(2**32))
    )
    parser.add_argument("--kills", type=int, default=sum(SHARES.values()), help="how many signals")
    parser.add_argument("--only", default=",".join([*SHARES, *SURROUNDINGS]), help="what to try, separated by commas")
    parser.add_argument(
        "--seconds", type=float, help="how long the command took that made FOLDER/whole, if it is there"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    pyarrow.array([])  # loads pandas, where it is installed
    training._SECONDS_BETWEEN_CHECKPOINTS = 0
    training._SECONDS_TIMED = 0.02
    sys.stdout.write(f"To repeat the same moments: --seed {options.seed}\n")
    into, draw = options.folder or Path(tempfile.mkdtemp(prefix="cascader-faults-")), random.Random(options.seed)
    found = (
        kills_of(_with_out(options.command, into / "whole", options.seconds), into, options.kills, draw)
        if options.command
        else all_faults(into, options.kills, options.only.split(","), draw)
    )
    faults = list(_told(found))
    (into / "faults.json").write_text(json.dumps([vars(fault) for fault in faults]))
    sys.stdout.write(f"{table(faults)}\n")
    is_lost = not all(fault.is_resumed and fault.is_equal for fault in faults)
    if options.folder is None and not is_lost:
        shutil.rmtree(into)
    return int(is_lost)


def _with_out(arguments: list[str], whole: Path, seconds: float | None) -> Command:
    return Command(arguments[0], lambda folder: [*arguments, "--out", str(folder)], whole, seconds=seconds)


def _told(faults: Iterator[Fault]) -> Iterator[Fault]:
    for fault in faults:
        sys.stdout.write(f"{fault.command}, {fault.what}: {'equal' if fault.is_equal else 'NOT EQUAL'}\n")
        sys.stdout.flush()
        yield fault


if __name__ == "__main__":
    sys.exit(main())
