"""Fewer bits for speed, where the processor can and the answers stay the same."""

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from cascader.errors import SettingsError
from cascader.models.text.int8 import Int8Layers, UpperLayers, export_int8

#: From the states below the split, (pairs, tokens, width), and their mask to scores, (pairs,).
Layers = Callable[[Tensor, Tensor], Tensor]

_BFLOAT16 = "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); assert float((x @ x).sum()) > 0"
_PROBE_SECONDS = 120


@cache
def has_bfloat16() -> bool:
    """Whether bfloat16 products work here: on some processors they kill the process, so a child tries."""
    try:
        child = subprocess.run([sys.executable, "-c", _BFLOAT16], capture_output=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return child.returncode == 0


def in_bfloat16(layers: UpperLayers) -> Layers:
    """The layers in bfloat16; an error where that would kill the process."""
    if not has_bfloat16():
        raise SettingsError(
            "precision is bfloat16, but bfloat16 products do not work on this processor (a trial in a process of its "
            "own failed). Set precision to float32 or int8."
        )
    halved = copy.deepcopy(layers).to(torch.bfloat16)
    return lambda states, mask: halved(states.to(torch.bfloat16), mask).float()


def in_int8(layers: UpperLayers, width: int) -> Int8Layers:
    """The layers in eight bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        export_int8(layers, width, path)
        return Int8Layers(path)
