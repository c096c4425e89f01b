"""Checkpoints: what they must have been made with."""

import pytest
import torch

from cascader.errors import DataError
from cascader.models.training import Checkpoint


def test_one_that_was_made_with_other_settings_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    Checkpoint(path, {"dim": 4, "others": "counted"}).save({"x": torch.ones(2)}, {"epochs": 3})
    tensors, progress = Checkpoint(path, {"dim": 4, "others": "counted"}).load()
    assert (tensors["x"].tolist(), progress) == ([1, 1], {"epochs": 3})
    with pytest.raises(DataError, match="was made with others 'counted', but now it is 'masked'"):
        Checkpoint(path, {"dim": 4, "others": "masked"}).load()
    with pytest.raises(DataError, match="was made with dim 4, but now it is 9"):
        Checkpoint(path, {"dim": 9, "others": "counted"}).load()
    with pytest.raises(DataError, match="was made with others 'counted', but now it is None"):
        Checkpoint(path, {"dim": 4}).load()
