"""The door to ONNX Runtime: the layers above the split, and the head, in eight bits."""

import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cascader.errors import MissingExtraError
from cascader.models.text.split_encoder import encode_cls
from cascader.storage import atomic_file


class UpperLayers(nn.Module):
    """What is exported: from the states below the split to a score."""

    def __init__(self, upper: nn.ModuleList, head: nn.Module) -> None:
        super().__init__()
        self.upper, self.head = upper, head

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """`states` is (pairs, tokens, width), `mask` (pairs, tokens); returns (pairs,)."""
        scores: Tensor = self.head(encode_cls(self.upper, states, mask))
        return scores


def export_int8(layers: UpperLayers, width: int, path: Path) -> None:
    """Write the layers and the head as an ONNX file with weights in eight bits, a scale for each channel."""
    onnx, quantization = _require("onnx"), _require("onnxruntime.quantization")
    _require("onnxscript")
    example = torch.randn(2, 8, width), torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    pairs, tokens = torch.export.Dim("pairs"), torch.export.Dim("tokens")
    whole = path.with_name(f".{path.name}.float32")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings(), torch.no_grad(), _silenced("torch.onnx", "root"):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                layers.eval(),
                example,
                whole,
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=["states", "mask"],
                output_names=["scores"],
                dynamic_shapes=({0: pairs, 1: tokens}, {0: pairs, 1: tokens}),
            )
            model = onnx.load(whole)
            del model.graph.value_info[:]  # quantization infers the shapes anew, and stumbles over the exporter's
            onnx.save(model, whole)
            with atomic_file(path) as temporary:
                quantization.quantize_dynamic(
                    whole, temporary, per_channel=True, weight_type=quantization.QuantType.QInt8
                )
    finally:
        whole.unlink(missing_ok=True)


class Int8Layers:
    """The exported layers, ready to score."""

    def __init__(self, path: Path) -> None:
        runtime = _require("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """Scores; shape (pairs,)."""
        (scores,) = self._session.run(["scores"], {"states": states.numpy(), "mask": mask.numpy()})
        return torch.from_numpy(scores)


def _require(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"eight bits need {module.partition('.')[0]}. Install it with: pip install 'cascader[onnx]', or set "
            "precision to float32."
        ) from error


class _silenced:  # noqa: N801 - reads as a word where it is used
    """Loggers that say nothing for a while."""

    def __init__(self, *names: str) -> None:
        self._loggers = [logging.getLogger(name) for name in names]

    def __enter__(self) -> None:
        self._levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self._loggers, self._levels, strict=True):
            logger.setLevel(level)
