"""A disk that is full while a checkpoint is written: a sentence, exit code 2, and the same command resumes."""

import json
import resource

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import cascader.models.training as training
from cascader.models.checkpoints import Checkpoint
from tests import processes
from tests.cli.conftest import call_once, setting_options

pytestmark = pytest.mark.slow
TIERS = {
    "kge": ("epochs=6", "dim=16", "valid_every=2"),
    "dual": ("epochs=6", "dim=16", "valid_every=2", "trainable_layers=1"),
    "cross": (
        "rounds=6",
        "queries_per_round=8",
        "valid_every=2",
        "split_layer=0",
        "valid_top_k=3",
        "precision=float32",
    ),
}


def fit_until_the_disk_is_full(tier, *words):
    """Run the command line as it is, with a checkpoint after every epoch, on a disk that is full after the third."""
    training._SECONDS_BETWEEN_CHECKPOINTS = 0
    training._SECONDS_TIMED = 0.02
    save = Checkpoint.save

    def save_and_fill_the_disk(self, tensors, progress):
        save(self, tensors, progress)
        if self.path.parent.name == tier and progress["epochs"] == 3:
            size = self.path.stat().st_size - 1  # of the next checkpoint, all but a byte
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    Checkpoint.save = save_and_fill_the_disk
    processes.command(*words)


@pytest.fixture(scope="module")
def command(likes, tiny_model):
    """The arguments that train a tier in a folder."""

    def command(tier, folder):
        settings = [f"{tier}.{setting}" for setting in TIERS[tier]]
        if tier != "kge":
            settings += [f"{tier}.base={tiny_model}", "kge.epochs=1", "kge.dim=2"]
        tiers = tier if tier == "kge" else f"kge,{tier}"
        return ["fit", str(likes), "--tiers", tiers, *setting_options(settings), "--out", str(folder)]

    return command


@pytest.fixture(scope="module")
def stopped_runs(command, tmp_path_factory):
    """A folder with the runs that a full disk has stopped, by tier, and their errors; and their exit codes."""
    folder, codes = tmp_path_factory.mktemp("full-disk"), {}
    for tier in TIERS:
        stopping, errors = (tier, *command(tier, folder / tier)), folder / f"{tier}.errors"
        codes[tier], _ = processes.finished(fit_until_the_disk_is_full, *stopping, errors=errors)
    return folder, codes


@pytest.mark.parametrize("tier", TIERS)
def test_a_full_disk_keeps_the_last_checkpoint_and_the_same_command_resumes(tier, command, stopped_runs, tmp_path):
    folder, codes = stopped_runs
    stopped, whole = folder / tier, tmp_path / "whole"
    checkpoint = stopped / "tiers" / tier / "checkpoint.safetensors"
    assert codes[tier] == 2
    errors = (folder / f"{tier}.errors").read_text()
    assert errors == f"error: cannot write {checkpoint}: File too large. Existing files are unchanged.\n"
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint.safetensors"]
    with safe_open(checkpoint, framework="pt") as file:
        assert json.loads(file.metadata()["cascader"])["progress"]["epochs"] == 3

    for folder in (stopped, whole):
        call_once(*command(tier, folder))
    ours, theirs = (load_file(folder / "tiers" / tier / "model.safetensors") for folder in (stopped, whole))
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    assert not checkpoint.exists()
