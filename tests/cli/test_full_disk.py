"""A disk that is full while a checkpoint is written: a sentence, exit code 2, and the same command resumes."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.cli.conftest import call_once, setting_options

pytestmark = pytest.mark.slow
#: The command line as it is, with a checkpoint after every epoch, on a disk that may be full after the third.
MAIN = """
import os, resource
import cascader.models.costs as costs
import cascader.models.training.loop as loop
from cascader.cli import main
from cascader.models.training.loop import Checkpoint

loop._SECONDS_BETWEEN_CHECKPOINTS = 0
costs._SECONDS = 0.02
save = Checkpoint.save

def save_and_fill_the_disk(self, tensors, progress):
    save(self, tensors, progress)
    if self.path.parent.name == os.environ.get("FULL_FOR") and progress["epochs"] == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

Checkpoint.save = save_and_fill_the_disk
main()
"""
TIERS = {
    "kge": ("epochs=6", "dim=16", "valid_every=2"),
    "dual": ("epochs=6", "dim=16", "valid_every=2", "trainable_layers=1"),
    "cross": ("rounds=6", "queries_per_round=8", "valid_every=2", "split_layer=1", "valid_top_k=3"),
}


@pytest.fixture
def command(likes, tiny_model):
    """The arguments that train a tier in a folder."""

    def command(tier, folder):
        settings = [f"{tier}.{setting}" for setting in TIERS[tier]]
        if tier != "kge":
            settings += [f"{tier}.base={tiny_model}", "kge.epochs=1", "kge.dim=2"]
        tiers = tier if tier == "kge" else f"kge,{tier}"
        return ["fit", str(likes), "--tiers", tiers, *setting_options(settings), "--out", str(folder)]

    return command


@pytest.mark.parametrize("tier", TIERS)
def test_a_full_disk_keeps_the_last_checkpoint_and_the_same_command_resumes(tier, command, tmp_path):
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    environment = {**os.environ, "FULL_FOR": tier}
    first = subprocess.run(
        [sys.executable, "-c", MAIN, *command(tier, stopped)], capture_output=True, text=True, env=environment
    )
    checkpoint = stopped / "tiers" / tier / "checkpoint.safetensors"
    assert first.returncode == 2
    assert first.stderr == f"error: cannot write {checkpoint}: File too large. Existing files are unchanged.\n"
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint.safetensors"]
    with safe_open(checkpoint, framework="pt") as file:
        assert json.loads(file.metadata()["cascader"])["progress"]["epochs"] == 3

    for folder in (stopped, whole):
        call_once(*command(tier, folder))
    ours, theirs = (load_file(folder / "tiers" / tier / "model.safetensors") for folder in (stopped, whole))
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    assert not checkpoint.exists()
