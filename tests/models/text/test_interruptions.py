"""Language model tiers that are killed: they go on to the very same weights, the optimizer's memory included."""

import json
import random
import signal
import sys
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import cascader.models.training as training
from cascader.graph import KnowledgeGraph
from cascader.models import Frequency
from cascader.models.checkpoints import Checkpoint
from cascader.models.text import ContextEncoder, CrossEncoder, DualEncoder, LateInteraction, PooledEncoder
from tests.models.test_training import Killed, until
from tests.processes import Forked

DUAL = {"dim": 8, "hidden": 16, "batch_size": 4, "valid_every": 5, "patience": 10**6}
CROSS = {
    "queries_per_round": 8,
    "batch_size": 4,
    "valid_every": 5,
    "valid_top_k": 3,
    "hard_negative_pool": 4,
    "patience": 10**6,
}
TIERS = {
    "contrastive": (DualEncoder, {**DUAL, "trainable_layers": 1, "hard_negatives": 2, "negatives": 4}),
    "star": (DualEncoder, {**DUAL, "objective": "star", "trainable_layers": 2, "negatives": 4}),
    "pooled": (PooledEncoder, {**CROSS, "pretraining_epochs": 1}),
    "listwise": (CrossEncoder, {**CROSS, "split_layer": 0}),
    "kg-bert": (CrossEncoder, {**CROSS, "objective": "kg-bert", "split_layer": 0, "negatives": 2}),
}
LATE = {**DUAL, "layer": 1, "hard_negatives": 2, "negatives": 4}
del LATE["hidden"]
CONTEXT = {"dim": 4, "batch_size": 8, "valid_every": 5, "patience": 10**6}
#: Those whose epochs are interrupted step by step.
ALL = {**TIERS, "late": (LateInteraction, LATE), "context": (ContextEncoder, CONTEXT)}
LENGTH = {PooledEncoder: "rounds", CrossEncoder: "rounds"}


def train(name, tiny_model, folder, length):
    """Train a tier until it has done `length` epochs in all."""
    kind, settings = ALL[name]
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdef" for b in "uvwx"]
    kg = KnowledgeGraph.from_triples(rows[:20], valid=rows[20:], name="likes")
    return kind(base=tiny_model, **settings, **{LENGTH.get(kind, "epochs"): length}).fit(
        kg, folder=folder, earlier=Frequency().fit(kg)
    )


def train_on_and_on(name, tiny_model, folder):
    training._SECONDS_BETWEEN_CHECKPOINTS = 0
    train(name, tiny_model, folder, length=10**6)


@pytest.fixture(scope="module")
def killed_at_random_moments(tiny_model, tmp_path_factory):
    """The seed of the moments, and a folder with what each tier left behind.

    Each is killed during an epoch, a validation or a checkpoint.
    """
    folder, seed = tmp_path_factory.mktemp("killed"), random.randrange(2**32)
    draw = random.Random(seed)
    for name in TIERS:
        with Forked(train_on_and_on, name, tiny_model, folder / name) as process:
            deadline = time.monotonic() + 120
            while not (folder / name / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(draw.uniform(0, 0.5))
            process.kill()
            assert process.wait() == -signal.SIGKILL
    return seed, folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_killed_at_any_moment_it_goes_on_to_the_same_weights(name, tiny_model, killed_at_random_moments, tmp_path):
    seed, folder = killed_at_random_moments
    sys.stdout.write(f"killed after delays drawn with seed {seed}\n")  # pytest shows it if the test fails
    killed, uninterrupted = folder / name, tmp_path / "uninterrupted"
    length = epochs_done(killed) + 3
    resumed, whole = (train(name, tiny_model, folder, length) for folder in (killed, uninterrupted))
    assert resumed.history_.losses == whole.history_.losses
    assert resumed.history_.valid == whole.history_.valid
    assert_same_tensors(killed / "checkpoint.safetensors", uninterrupted / "checkpoint.safetensors")
    for model, folder in ((resumed, killed), (whole, uninterrupted)):
        model.save(folder)
    for saved in ("model.safetensors", "encoder/model.safetensors"):
        assert_same_tensors(killed / saved, uninterrupted / saved)


@pytest.mark.parametrize("name", ALL)
def test_interrupted_within_an_epoch_it_goes_on_to_the_same_weights(name, tiny_model, tmp_path, monkeypatch):
    whole = train(name, tiny_model, tmp_path / "whole", length=3)
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    for epochs in (0, 1):  # before the optimizer remembers an epoch, and after that
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoint, "save", until(epochs, steps=1))
            train(name, tiny_model, tmp_path / "killed", length=3)
    resumed = train(name, tiny_model, tmp_path / "killed", length=3)
    assert resumed.history_.losses == whole.history_.losses
    for model, folder in ((resumed, "killed"), (whole, "whole")):
        model.save(tmp_path / folder)
    assert_same_tensors(tmp_path / "killed" / "model.safetensors", tmp_path / "whole" / "model.safetensors")


def epochs_done(folder):
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["cascader"])["progress"]["epochs"]


def assert_same_tensors(first, second):
    ours, theirs = load_file(first), load_file(second)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
