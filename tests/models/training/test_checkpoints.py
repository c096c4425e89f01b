"""Checkpoints: what they must have been made with."""

import pytest
import torch

from cascader.errors import DataError
from cascader.models.training.checkpoints import Checkpoint


def test_one_from_before_a_setting_existed_was_made_with_its_default(tmp_path):
    path, defaults = tmp_path / "checkpoint.safetensors", {"dim": 9, "others": "counted"}
    Checkpoint(path, {"dim": 4}).save({"x": torch.ones(2)}, {"epoch": 3})
    tensors, progress = Checkpoint(path, {"dim": 4, "others": "counted"}, defaults).load()
    assert (tensors["x"].tolist(), progress) == ([1, 1], {"epoch": 3})
    with pytest.raises(DataError, match="was made with others 'counted', but now it is 'masked'"):
        Checkpoint(path, {"dim": 4, "others": "masked"}, defaults).load()
    with pytest.raises(DataError, match="was made with dim 4, but now it is 9"):
        Checkpoint(path, {"dim": 9, "others": "counted"}, defaults).load()
