import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cascader.cascade.pruners import ConformalTopK, DynamicTopK, StaticTopK, load_pruner
from cascader.errors import DataError
from tests.contracts.pruner import a_block, lists_of


@pytest.mark.parametrize("pruner", [StaticTopK(0.9), DynamicTopK(0.9, epochs=2), ConformalTopK(0.7)])
def test_tensors_survive_a_file(pruner, tmp_path):
    block = a_block()
    pruner.fit([block])
    path = tmp_path / "pruner.safetensors"
    save_file({name: torch.from_numpy(values) for name, values in pruner.tensors().items()}, path)
    loaded = load_pruner(pruner.as_dict(), load_file(path))
    assert lists_of(loaded.keep(block.queries, block.scores)) == lists_of(pruner.keep(block.queries, block.scores))


def test_an_unknown_pruner_is_an_error():
    with pytest.raises(
        DataError, match="no pruner 'best', expected one of: capped, top_k, static, dynamic, conformal, budgeted"
    ):
        load_pruner({"pruner": "best"}, {})


def test_a_pruner_of_which_a_part_is_missing_is_an_error():
    pruner = DynamicTopK(0.9, epochs=2).fit([a_block()])
    tensors = pruner.tensors()
    del tensors["output.bias"]
    with pytest.raises(DataError, match="the dynamic pruner is incomplete"):
        load_pruner(pruner.as_dict(), tensors)
    with pytest.raises(DataError, match="the static pruner is incomplete"):
        load_pruner({"pruner": "static", "quantile": 0.9, "k": {"head": 1, "tail": 1}}, {"head_ranks": np.ones(1)})
