"""Fewer bits for speed, if the processor can and the answers stay the same; the door to ONNX Runtime."""

import copy
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from cascader.errors import DataError, MissingExtraError, SettingsError
from cascader.models.text.split_encoder import encode_cls

#: From the states below the split, (pairs, tokens, width), and their mask to scores, (pairs,).
Layers = Callable[[Tensor, Tensor], Tensor]

_BFLOAT16 = "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); assert float((x @ x).sum()) > 0"
_PROBE_SECONDS = 120
_SCORES = "scores"


class UpperLayers(nn.Module):
    """The layers above the split and the head: from states to scores."""

    def __init__(self, upper: nn.ModuleList, head: nn.Module) -> None:
        super().__init__()
        self.upper, self.head = upper, head

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """`states` is (pairs, tokens, width), `mask` is (pairs, tokens); returns (pairs,)."""
        scores: Tensor = self.head(encode_cls(self.upper, states, mask))
        return scores


@cache
def has_bfloat16() -> bool:
    """Whether bfloat16 products work here: on some processors they kill the process, so a child process tries."""
    try:
        child = subprocess.run([sys.executable, "-c", _BFLOAT16], capture_output=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return child.returncode == 0


def in_bfloat16(layers: UpperLayers) -> Layers:
    """The layers in bfloat16; an error if that would kill the process."""
    if layers.device.type == "cpu" and not has_bfloat16():
        raise SettingsError(
            "precision is bfloat16, but bfloat16 products do not work on this processor: a trial in a child process "
            "failed. Set precision to float32 or int8."
        )
    halved = copy.deepcopy(layers).to(torch.bfloat16)
    return lambda states, mask: halved(states.to(torch.bfloat16), mask).float()


def export_int8(layers: UpperLayers, width: int) -> bytes:
    """The layers and the head as an ONNX file with int8 weights, and a scale for each channel."""
    layers = layers if layers.device.type == "cpu" else copy.deepcopy(layers).cpu()
    with _onnx_installed():
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it
        from onnxruntime import quantization
    example = torch.randn(2, 8, width), torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    pairs, tokens = torch.export.Dim("pairs"), torch.export.Dim("tokens")
    with tempfile.TemporaryDirectory() as folder, _silenced("torch.onnx", "root"):
        whole, quantized = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                layers.eval(),
                example,
                whole,
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=["states", "mask"],
                output_names=[_SCORES],
                dynamic_shapes=({0: pairs, 1: tokens}, {0: pairs, 1: tokens}),
            )
            model = onnx.load(whole)
            del model.graph.value_info[:]  # quantization infers the shapes itself, and fails on the exporter's
            onnx.save(model, whole)
            weights = quantization.QuantType.QInt8
            quantization.quantize_dynamic(whole, quantized, per_channel=True, weight_type=weights)
        return quantized.read_bytes()


class Int8Layers:
    """The layers that `export_int8` has exported, for states of this width, ready to score."""

    def __init__(self, exported: bytes, width: int) -> None:
        with _onnx_installed():
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # it keeps a plan for every shape of a batch, and saves no time
        try:
            self._session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a type for each of its error codes
            reason = _said(error)
            raise DataError(f"the layers in eight bits cannot be loaded: {reason}. Copy the run again.") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        found = {each.name: (each.type, len(each.shape), each.shape[2:]) for each in inputs}
        wanted = {"states": ("tensor(float)", 3, [width]), "mask": ("tensor(bool)", 2, [])}
        if found != wanted or [each.name for each in outputs] != [_SCORES]:
            shown = ", ".join(f"{each.name} {each.type} {each.shape}" for each in (*inputs, *outputs))
            raise DataError(
                f"the layers in eight bits have {shown}; expected states of width {width}, a mask, and {_SCORES}. Copy "
                "the run again."
            )

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """Scores; shape (pairs,)."""
        given = {"states": states.cpu().numpy(), "mask": mask.cpu().numpy()}
        try:
            (found,) = self._session.run([_SCORES], given)
        except Exception as error:  # as above
            raise DataError(f"the layers in eight bits cannot score: {_said(error)}. Copy the run again.") from error
        scores = torch.from_numpy(found)
        if scores.dtype != torch.float32 or scores.shape != states.shape[:1]:
            raise DataError(
                f"the layers in eight bits give {scores.dtype} {tuple(scores.shape)} for {len(states)} pairs, expected "
                "a float32 for each. Copy the run again."
            )
        return scores


def _said(error: Exception) -> str:
    return " ".join(str(error).split())


def has_onnx() -> bool:
    """Whether everything that int8 needs is installed."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime", "onnxscript"))


@contextmanager
def _onnx_installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"precision int8 needs {error.name or 'onnx'}. Install it with: pip install 'cascader[onnx]', or set "
            "precision to float32."
        ) from error


@contextmanager
def _silenced(*names: str) -> Iterator[None]:
    """Silence loggers for a while."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
