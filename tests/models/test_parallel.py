"""Training with several processes: shares add up, two processes train like one, and one that dies is named."""

import json
import os
import shutil
import signal
import threading
import time
from multiprocessing import active_children

import numpy as np
import pytest
import torch

from cascader import (
    ContextEncoder,
    CrossEncoder,
    DualEncoder,
    Frequency,
    LateInteraction,
    PooledEncoder,
    SettingsError,
    TrainingError,
)
from cascader.graph import Queries
from cascader.models.device import training_with
from cascader.models.optimization import Draws

PAIRS = {"rounds": 3, "queries_per_round": 12, "batch_size": 5, "valid_top_k": 3, "hard_negative_pool": 4}
KINDS = {
    "cross": (CrossEncoder, {"split_layer": 1, **PAIRS}),
    "cross, kg-bert": (CrossEncoder, {"split_layer": 1, "objective": "kg-bert", **PAIRS}),
    "pooled": (PooledEncoder, {**PAIRS}),
    "dual": (DualEncoder, {"dim": 8, "hidden": 16, "dropout": 0.0, "negatives": 4}),
    "dual, layers tuned": (DualEncoder, {"dim": 8, "hidden": 16, "dropout": 0.0, "trainable_layers": 1}),
    "star": (DualEncoder, {"objective": "star", "trainable_layers": 1, "dropout": 0.0, "negatives": 4}),
    "late": (LateInteraction, {"layer": 1, "dim": 8, "dropout": 0.0, "negatives": 4}),
    "context": (ContextEncoder, {"trainable_layers": 1, "dim": 8, "neighbors": 2, "batch_size": 7, "dropout": 0.0}),
}


@pytest.fixture(scope="module")
def calm_model(three_layers, tmp_path_factory):
    """A language model without dropout, which no two processes draw alike."""
    folder = tmp_path_factory.mktemp("calm") / "model"
    shutil.copytree(three_layers, folder)
    config = json.loads((folder / "config.json").read_text())
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps({**config, **none}))
    return str(folder)


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def training(request, calm_model, toy):
    kind, settings = KINDS[request.param]
    return kind(base=calm_model, **settings)._prepare(toy, Frequency().fit(toy) if kind.reads_pairs else None)


@pytest.mark.parametrize("count", [2, 9])
def test_the_gradients_of_all_shares_add_up_to_that_of_the_batch(training, count):
    training._start_epoch(None)
    training.start_helping()
    draws = Draws(seed=0, epoch=1, device=training.device)
    batch = training._batches(1, draws)[0]
    work, weights = training._drawn(batch, draws), training.flat_weights()
    whole = training.learn_helping(work, 1.0, weights)
    shares = work.shares(count)
    assert len(shares) == count
    assert len(shares[0][0]) > 0
    assert sum(len(share) for share, _ in shares) == len(work)
    added = sum(training.learn_helping(share, counts, weights) for share, counts in shares)
    assert whole[-1] > 0
    torch.testing.assert_close(added, whole, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def settings(calm_model):
    return {"base": calm_model, "split_layer": 1, **PAIRS, "patience": 9, "precision": "float32"}


@pytest.mark.slow
def test_two_processes_give_the_losses_and_weights_of_one(settings, toy):
    earlier = Frequency().fit(toy)
    alone = CrossEncoder(**settings).fit(toy, earlier=earlier)
    with training_with(2):
        together = CrossEncoder(**settings).fit(toy, earlier=earlier)
    np.testing.assert_allclose(together.history_.losses, alone.history_.losses, rtol=1e-5)
    assert list(together.history_.valid) == list(alone.history_.valid)
    queries = Queries.from_triples(toy.triples())
    np.testing.assert_allclose(together.score_all(queries), alone.score_all(queries), rtol=1e-3, atol=1e-4)
    assert active_children() == []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_process_that_is_killed_ends_the_training_with_a_sentence_and_its_checkpoint_goes_on(
    settings, toy, tmp_path, monkeypatch
):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    long = {**settings, "rounds": 100_000, "patience": 100_000, "max_tokens": 8}

    def kill_one() -> None:
        while not (tmp_path / "checkpoint.safetensors").exists():
            time.sleep(0.05)
        os.kill(active_children()[0].pid, signal.SIGKILL)

    threading.Thread(target=kill_one, daemon=True).start()
    with (
        training_with(2),
        pytest.raises(TrainingError, match=r"process \d+ died \(exit code -9\).*The same command goes"),
    ):
        CrossEncoder(**long).fit(toy, folder=tmp_path)
    assert active_children() == []
    done = CrossEncoder(**{**long, "rounds": 1}).fit(toy, folder=tmp_path)
    assert done.history_.epochs > 0 or done.history_.partial is not None


@pytest.mark.parametrize("processes", [0, -1, 100_000])
def test_a_number_of_processes_that_is_none_is_refused(processes):
    with (
        pytest.raises(SettingsError, match=rf"training_processes is {processes}, expected from 1 to 1,024"),
        training_with(processes),
    ):
        pass
