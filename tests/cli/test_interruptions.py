"""A whole run that is killed ten times is the run that was never killed."""

import json
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from cascader.runs import load_run
from cascader.storage import read_parquet

#: Loads everything once, then forks: each child is `cascader fit`, and is killed at a random moment.
KILLER = """
import os, random, signal, sys, time
import cascader.models.training.loop as loop
from cascader.cli.app import app
import cascader.models.text.cross_encoder, cascader.models.embeddings, cascader.runs, transformers

loop._SECONDS_BETWEEN_CHECKPOINTS = 0
kills, killed = int(sys.argv[1]), 0
while True:
    child = os.fork()
    if child == 0:
        app(sys.argv[2:], standalone_mode=False)
        os._exit(0)
    ends = time.monotonic() + random.uniform(0.02, 1.5) if killed < kills else float("inf")
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
            break
        time.sleep(0.005)
    else:
        break
print("killed", killed, file=sys.stderr)
"""


@pytest.fixture
def command(tmp_path, tiny_model):
    rows = [f"abc {a}\tlikes\txyz {b}\n" for a in "abcdefghijkl" for b in "qrstuvwxyz" if a != b]
    (tmp_path / "likes.tsv").write_text("".join(rows))
    small = ["epochs=20", "dim=8", f"dual.base={tiny_model}", "dual.epochs=20", f"cross.base={tiny_model}"]
    small += ["cross.split_layer=1", "cross.rounds=10", "cross.queries_per_round=16", "cross.valid_top_k=3"]
    return ["fit", str(tmp_path / "likes.tsv"), *(part for setting in small for part in ("--set", setting))]


def fit(command, folder, kills):
    finished = subprocess.run(
        [sys.executable, "-c", KILLER, str(kills), *command, "--out", str(folder)], capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


def test_killed_ten_times_it_ends_with_the_same_weights_scores_and_answers(command, tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    said = fit(command, killed, kills=10)
    assert int(said.split()[-1]) >= 3, said  # a fast machine may be done before the tenth
    fit(command, whole, kills=0)
    for tier in ("kge", "dual", "cross"):
        ours, theirs = (load_file(folder / "tiers" / tier / "model.safetensors") for folder in (killed, whole))
        assert ours.keys() == theirs.keys()
        assert all((ours[name] == theirs[name]).all() for name in ours)
    assert shards(killed) == shards(whole)
    first, second = (json.loads((folder / "tuning.json").read_text())["trials"] for folder in (killed, whole))
    for trial in (*first, *second):
        del trial["seconds_per_query"]  # measured
    assert first == second
    for folder in (killed, whole):
        load_run(folder)
        evaluate = [sys.executable, "-m", "cascader", "evaluate", str(folder)]
        assert subprocess.run(evaluate, capture_output=True).returncode == 0
    ranks = [read_parquet(folder / "results" / "cascade.ranks.parquet") for folder in (killed, whole)]
    assert ranks[0] == ranks[1]


def shards(folder):
    """The bytes of all kept scores, by name below the model's own folder."""
    return {
        path.relative_to(folder / "scores" / "cross").as_posix().partition("/")[2]: path.read_bytes()
        for path in sorted((folder / "scores").rglob("*.safetensors"))
    }
