"""A whole run that is killed ten times is the run that was never killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from cascader.storage import read_parquet
from tests.cli.conftest import call_once, setting_options

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
KILLS = 10


@pytest.fixture
def command(likes, tiny_model):
    small = ["epochs=8", "dim=4", f"dual.base={tiny_model}", "dual.epochs=6", f"cross.base={tiny_model}"]
    small += [f"late.base={tiny_model}", "late.epochs=4", "late.layer=1", "late.dim=4"]
    small += [
        "cross.split_layer=0",
        "cross.precision=float32",
        "cross.rounds=5",
        "cross.queries_per_round=8",
        "cross.valid_top_k=3",
    ]
    return ["fit", str(likes), *setting_options(small)]


def test_killed_ten_times_it_ends_with_the_same_weights_scores_and_answers(command, tmp_path, random_seed):
    killer = [sys.executable, "-m", "tests.cli.killed_fits", str(tmp_path), str(random_seed), str(KILLS)]
    finished = subprocess.run([*killer, *command], cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    killed = json.loads((tmp_path / "killed.json").read_text())
    assert sum(killed.values()) == KILLS
    expected = result_of(tmp_path / "whole")
    for name in killed:
        assert result_of(tmp_path / name) == expected


def result_of(folder):
    """Weights, kept scores, what tuning found, and the ranks on test."""
    call_once("evaluate", folder)
    weights = {
        f"{path.parent.name}/{name}": values.tobytes()
        for path in (folder / "tiers").rglob("model.safetensors")
        for name, values in load_file(path).items()
    }
    trials = json.loads((folder / "tuning.json").read_text())["trials"]
    for trial in trials:
        del trial["seconds_per_query"]  # measured
    return weights, shards(folder), trials, read_parquet(folder / "results" / "cascade.ranks.parquet")


def shards(folder):
    """The bytes of all kept scores, by name below the model's own folder."""
    return {
        path.relative_to(folder / "scores" / "cross").as_posix().partition("/")[2]: path.read_bytes()
        for path in sorted((folder / "scores").rglob("*.safetensors"))
    }
