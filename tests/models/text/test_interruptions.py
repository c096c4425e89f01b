"""Language model tiers that are killed: they go on to the very same weights, the optimizer's memory included."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from cascader.graph import KnowledgeGraph
from cascader.models import Frequency
from cascader.models.text import CrossEncoder, DualEncoder
from tests.models.embeddings.test_training import chosen_delay

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
    "listwise": (CrossEncoder, {**CROSS, "split_layer": 1}),
    "kg-bert": (CrossEncoder, {**CROSS, "objective": "kg-bert", "split_layer": 0, "negatives": 2}),
}
LENGTH = {DualEncoder: "epochs", CrossEncoder: "rounds"}

KILLED = """
import sys
import cascader.models.training.loop as loop
from tests.models.text.test_interruptions import train
loop._SECONDS_BETWEEN_CHECKPOINTS = 0
train(sys.argv[1], sys.argv[2], sys.argv[3], length=10**6)
"""


def train(name, tiny_model, folder, length):
    """Train a tier until it has done `length` epochs in all."""
    kind, settings = TIERS[name]
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdef" for b in "uvwx"]
    kg = KnowledgeGraph.from_triples(rows[:20], valid=rows[20:], name="likes")
    return kind(base=tiny_model, **settings, **{LENGTH[kind]: length}).fit(
        kg, folder=folder, earlier=Frequency().fit(kg)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_killed_at_any_moment_it_goes_on_to_the_same_weights(name, tiny_model, tmp_path):
    killed, uninterrupted = tmp_path / "killed", tmp_path / "uninterrupted"
    kill_at_a_random_moment(name, tiny_model, killed)
    length = epochs_done(killed) + 3
    resumed, whole = (train(name, tiny_model, folder, length) for folder in (killed, uninterrupted))
    assert resumed.history_.losses == whole.history_.losses
    assert resumed.history_.valid == whole.history_.valid
    assert_same_tensors(killed / "checkpoint.safetensors", uninterrupted / "checkpoint.safetensors")
    for model, folder in ((resumed, killed), (whole, uninterrupted)):
        model.save(folder)
    for saved in ("model.safetensors", "encoder/model.safetensors"):
        assert_same_tensors(killed / saved, uninterrupted / saved)


def kill_at_a_random_moment(name, tiny_model, folder):
    checkpoint = folder / "checkpoint.safetensors"
    process = subprocess.Popen([sys.executable, "-c", KILLED, name, tiny_model, str(folder)])
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(chosen_delay(most=0.5))  # during an epoch, a validation or a checkpoint
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def epochs_done(folder):
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["cascader"])["progress"]["epochs"]


def assert_same_tensors(first, second):
    ours, theirs = load_file(first), load_file(second)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
