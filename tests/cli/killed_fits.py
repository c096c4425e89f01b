"""`cascader fit` again and again, killed at random moments: python -m tests.cli.killed_fits FOLDER SEED KILLS FIT..."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

# Loaded here, once, and not in every child.
from transformers import BertModel, PreTrainedTokenizerFast  # noqa: F401

import cascader.models.embeddings
import cascader.models.text
import cascader.models.training as training
import cascader.runs  # noqa: F401
from cascader.cli.app import app


def fit(command: list[str], folder: Path, seconds: float) -> bool:
    """Fit in a child, which is killed after so many seconds; whether it was done before."""
    child = os.fork()
    if child == 0:
        app([*command, "--out", str(folder)], standalone_mode=False)
        os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, f"{folder} ended with {status}"
            return True
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main(into: Path, seed: int, kills: int, command: list[str]) -> None:
    """Fit once undisturbed, then killed so often; a run that is done before the last kill is followed by another."""
    training._SECONDS_BETWEEN_CHECKPOINTS = 0
    training._SECONDS_TIMED = 0.02
    draw = random.Random(seed)
    started = time.monotonic()
    assert fit(command, into / "whole", float("inf"))
    whole_seconds = time.monotonic() - started
    killed: dict[str, int] = {}
    name = "killed-0"
    while sum(killed.values()) < kills:
        if fit(command, into / name, draw.uniform(0, whole_seconds / 3)):
            name = f"killed-{len(killed)}"
        else:
            killed[name] = killed.get(name, 0) + 1
    for name in killed:
        assert fit(command, into / name, float("inf"))
    (into / "killed.json").write_text(json.dumps(killed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
