"""The choice of a device: names, what is absent, where the choice holds, and that a forgotten move is noticed."""

import numpy as np
import pytest
import torch

import cascader
from cascader import ComplEx, SettingsError, load_run, save_run, using_device
from cascader.models.device import current_device, find_device
from tests.contracts.device import FAKE_DEVICE, devices_of


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize(
    ("asked", "found"), [("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("CPU", "cpu"), (" cpu ", "cpu")]
)
def test_a_device_is_found_by_name(asked, found, two_gpus):
    assert str(find_device(asked)) == found


def test_auto_is_the_gpu_of_a_mac_or_else_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(find_device("auto")) == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert str(find_device("auto")) == "cpu"


@pytest.mark.parametrize("asked", ["gpu", "", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "meta", "cuda:٣"])
def test_a_name_that_is_none_is_refused_with_those_that_are(asked):
    with pytest.raises(SettingsError, match=r"expected auto, cpu, cuda, cuda:N .* or mps\. This machine has: cpu"):
        find_device(asked)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(two_gpus):
    with pytest.raises(SettingsError, match="device is 'cuda:2', but torch .* finds only: cpu, cuda:0, cuda:1. Choose"):
        find_device("cuda:2")


def test_the_cpu_is_used_unless_something_else_is_asked_for(monkeypatch, two_gpus):
    monkeypatch.delenv("CASCADER_DEVICE", raising=False)
    assert str(current_device()) == "cpu"
    monkeypatch.setenv("CASCADER_DEVICE", "cuda:1")
    assert str(current_device()) == "cuda:1"
    with using_device("cuda"):
        with using_device(None):
            assert str(current_device()) == "cuda:0"
        with using_device("cpu"):
            assert str(current_device()) == "cpu"
        assert str(current_device()) == "cuda:0"
    assert str(current_device()) == "cuda:1"


def test_an_error_names_the_environment_variable_where_the_name_came_from(monkeypatch):
    monkeypatch.setenv("CASCADER_DEVICE", "warp")
    with pytest.raises(SettingsError, match="CASCADER_DEVICE is 'warp', expected auto"):
        current_device()


def test_a_run_answers_where_it_was_loaded_and_its_files_do_not_tell(toy, tmp_path):
    with using_device(FAKE_DEVICE):
        there = save_run(tmp_path / "there", toy, {"kge": ComplEx(dim=4, epochs=2).fit(toy)})
    here = save_run(tmp_path / "here", toy, {"kge": ComplEx(dim=4, epochs=2).fit(toy)})
    assert devices_of(there.tier("kge")) == {"fake"}
    assert (there.device, here.device) == ("fake:0", "cpu")
    assert load_run(tmp_path / "there", device="cpu").device == "cpu"
    saved = "tiers/kge/model.safetensors"
    assert (tmp_path / "there" / saved).read_bytes() == (tmp_path / "here" / saved).read_bytes()
    answers = [[(a.name, a.score) for a in run.predict("aspirin", "treats")] for run in (there, here)]
    assert answers[0] == answers[1]


def test_fit_takes_a_device_and_refuses_one_that_is_not_there(toy, tmp_path):
    small = {"tiers": "kge", "settings": {"kge": {"dim": 4, "epochs": 1}}}
    assert cascader.fit(toy, tmp_path / "run", device="auto", **small).device == str(find_device("auto"))
    with pytest.raises(SettingsError, match="device is 'cuda:99', but torch"):
        cascader.fit(toy, tmp_path / "other", device="cuda:99", **small)
    assert not (tmp_path / "other").exists()


class Forgetful(ComplEx):
    """Leaves a tensor where it was made."""

    def transform(self, anchors, relations):
        return super().transform(anchors, relations) + torch.zeros(relations.shape)


class Hasty(ComplEx):
    """Takes a tensor for an array."""

    def similarity(self, predicted, entities):
        return torch.from_numpy(super().similarity(predicted, entities).detach().numpy())


@pytest.mark.parametrize(("model", "message"), [(Forgetful, "two devices: fake:0 and cpu"), (Hasty, "numpy")])
def test_the_fake_device_notices_what_is_forgotten(model, message, toy):
    model(dim=4, epochs=1).fit(toy)
    with using_device(FAKE_DEVICE), pytest.raises(RuntimeError, match=message):
        model(dim=4, epochs=1).fit(toy)


def test_a_gpu_that_is_too_small_is_a_sentence(toy, monkeypatch):
    def loss(*_):
        raise torch.OutOfMemoryError("tried to allocate 20 GiB")

    monkeypatch.setattr("cascader.models.embeddings.training.EmbeddingTraining._loss_of", loss)
    with pytest.raises(cascader.TrainingError, match="the memory of cpu is too small for this training. Lower batch_"):
        ComplEx(dim=4, epochs=1).fit(toy)


def test_draws_are_the_same_on_every_device_and_leave_the_generators_alone(toy):
    before = torch.get_rng_state()
    with using_device(FAKE_DEVICE):
        there = ComplEx(dim=4, epochs=2, dropout=0.5).fit(toy)
    here = ComplEx(dim=4, epochs=2, dropout=0.5).fit(toy)
    np.testing.assert_array_equal(there.entities_.cpu().numpy(), here.entities_.numpy())
    assert torch.equal(torch.get_rng_state(), before)
