"""Checkpoints: what they must have been made with, and what a damaged one is."""

import json

import pytest
import torch

from cascader.errors import DataError
from cascader.models.checkpoints import FORMAT, Checkpoint
from cascader.models.embeddings import ComplEx
from cascader.models.history import Schedule, TrainingHistory
from cascader.models.training import train
from cascader.storage import read_tensors, write_tensors

AGAIN = "Remove it, and the same command starts that training again."


def test_one_that_was_made_with_other_settings_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    history = TrainingHistory(epochs=3)
    Checkpoint(path, {"dim": 4, "others": "counted"}).save({"weights/x": torch.ones(2)}, history.as_dict())
    parts, progress = Checkpoint(path, {"dim": 4, "others": "counted"}).load()
    assert (parts.weights["x"].tolist(), progress) == ([1, 1], history)
    with pytest.raises(DataError, match="was made with others 'counted', but now it is 'masked'"):
        Checkpoint(path, {"dim": 4, "others": "masked"}).load()
    with pytest.raises(DataError, match="was made with dim 4, but now it is 9"):
        Checkpoint(path, {"dim": 9, "others": "counted"}).load()
    with pytest.raises(DataError, match="was made with others 'counted', but now it is None"):
        Checkpoint(path, {"dim": 4}).load()


class Nothing:
    """A training of one weight that learns nothing."""

    step_count = 2

    def steps(self, epoch, done=0, state=None):
        for _ in range(done, self.step_count):
            yield 1.0, 1

    def epoch_state(self):
        return {}

    def validate(self):
        return 0.5

    def weights(self):
        return {"w": torch.zeros(3)}

    def optimizer_state(self):
        return {}

    def load(self, weights, optimizer_state):
        pass


PROGRESS = TrainingHistory(1, [1.0], {1: 0.5}, seconds=1.0).as_dict()
HEADER = {"format": FORMAT, "identity": {"dim": 4}, "progress": PROGRESS}
TENSORS = {"weights/w": torch.zeros(3), "best/w": torch.zeros(3)}


def without(content, name):
    return {each: value for each, value in content.items() if each != name}


def going_on_from(path, header, tensors):
    write_tensors(path, tensors, {"cascader": header if isinstance(header, str) else json.dumps(header)})
    return train(Nothing(), Schedule(3), Checkpoint(path, {"dim": 4}))


def progress(**changes):
    return {**HEADER, "progress": {**PROGRESS, **changes}}


def test_a_whole_one_is_gone_on_from(tmp_path):
    assert going_on_from(tmp_path / "checkpoint.safetensors", HEADER, TENSORS).epochs == 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ([], "is not a checkpoint: its header is no JSON object"),
        ("[" * 100_000, "is not a checkpoint: "),
        ("{", "is not a checkpoint: "),
        ({}, "is a checkpoint of format None, expected 2"),
        (without(HEADER, "identity"), "has no identity"),
        ({**HEADER, "identity": None}, "has identity None; expected"),
        (without(HEADER, "progress"), "has no progress"),
        ({**HEADER, "progress": without(PROGRESS, "valid")}, "has no progress.valid"),
        (progress(epochs="1"), "has progress.epochs '1'; expected a valid integer"),
        (json.dumps(progress(seconds=float("nan"))), "is not a checkpoint: NaN is no number in JSON"),
        (progress(seconds=-1e9), "has progress.seconds -1000000000.0; expected greater than or equal to 0"),
        (progress(cut_at=-1), "has progress.cut_at -1; expected greater than or equal to 0"),
        (progress(losses=["x"]), "has progress.losses.0 'x'; expected a valid number"),
        (progress(losses=[1.0, 1.0]), "does not fit its training: it has 2 losses of 1 epochs"),
        (progress(valid={"x": 1}), "has progress.valid.x"),
        (progress(valid={}), "it has the best weights, or what valid says of them, but not both"),
        (progress(partial={"steps": "1"}), "has progress.partial.steps '1'; expected a valid integer"),
        (progress(partial={"steps": 2, "rows": 2}), "it has 2 of 2 steps of an epoch, with 2 rows"),
        (progress(partial={"steps": 1, "rows": 0}), "it has 1 of 2 steps of an epoch, with 0 rows"),
    ],
)
def test_a_header_that_is_damaged_is_refused_with_a_sentence(tmp_path, header, said):
    with pytest.raises(DataError) as refused:
        going_on_from(tmp_path / "checkpoint.safetensors", header, TENSORS)
    assert said in str(refused.value)
    assert str(refused.value).endswith(AGAIN)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"evil/x": torch.zeros(1)}, "has a tensor 'evil/x', expected weights, optimizer, best, epoch"),
        ({"weights/w": torch.zeros(1)}, "weights/w has shape (1,), expected (3,)"),
        ({"best/w": torch.zeros(1)}, "best/w has shape (1,), expected (3,)"),
        ({"weights/x": torch.zeros(1)}, "weights/x has shape (1,), expected None"),
        ({"epoch/torch": torch.zeros(1)}, "it has the state of an epoch that has not begun"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_with_a_sentence(tmp_path, changes, said):
    with pytest.raises(DataError) as refused:
        going_on_from(tmp_path / "checkpoint.safetensors", HEADER, {**TENSORS, **changes})
    assert said in str(refused.value)
    assert str(refused.value).endswith(AGAIN)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch/numpy": torch.zeros(4, dtype=torch.uint8)},
        {"epoch/numpy": torch.frombuffer(bytearray(b"{}"), dtype=torch.uint8)},
        {"epoch/torch": torch.zeros(4, dtype=torch.uint8)},
        {"epoch/torch": torch.zeros(4)},
        {"epoch/numpy": None},
        {"optimizer/0.sum": torch.zeros(7)},
        {"optimizer/0.sum": None},
        {"optimizer/99.sum": torch.zeros(7)},
        {"optimizer/x": torch.zeros(7)},
    ],
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values()))!r:.20}",
)
def test_states_that_a_training_cannot_go_on_from_are_refused_with_a_sentence(toy, tmp_path, monkeypatch, change):
    settings = {"dim": 4, "epochs": 2, "batch_size": 4, "optimizer": "adagrad"}
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    path, save = tmp_path / "checkpoint.safetensors", Checkpoint.save

    def save_and_fail(self, tensors, progress):
        save(self, tensors, progress)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoint, "save", save_and_fail)
        ComplEx(**settings).fit(toy, folder=tmp_path)
    tensors, metadata = read_tensors(path)
    assert {"epoch/numpy", "epoch/torch", "optimizer/0.sum"} <= set(tensors)
    changed = {name: tensor for name, tensor in {**tensors, **change}.items() if tensor is not None}
    write_tensors(path, changed, metadata)
    with pytest.raises(DataError, match=r"checkpoint.safetensors does not fit its training: .*starts that training"):
        ComplEx(**settings).fit(toy, folder=tmp_path)
