"""The files of a model, read like a stranger's: what is damaged is an error that names the folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascader.errors import DataError, SettingsError
from cascader.graph import Array
from cascader.models.history import TrainingHistory
from cascader.records import Name, conforming
from cascader.storage import read_json

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
#: The two files of a saved model: what it is, and what it has learned.
MODEL_JSON, MODEL_TENSORS = "model.json", "model.safetensors"


@dataclass(frozen=True)
class ModelRecord:
    """What `model.json` says of a model; one that is registered may say more, or less."""

    model: Name
    settings: dict[str, Any] = field(default_factory=dict)
    history: TrainingHistory = field(default_factory=TrainingHistory)


def read_model_json(folder: Path) -> ModelRecord:
    """What `model.json` says of the model in a folder: its kind, settings and history."""
    path = folder / MODEL_JSON
    saved = read_json(path)
    if saved.get("format") != FORMAT or "model" not in saved:
        raise DataError(
            f"{path} has format {saved.get('format')!r} and model {saved.get('model')!r}, expected "
            f"format {FORMAT} and the name of a model. It was written by another version of cascader: fit again."
        )
    return conforming(saved, ModelRecord, path, f"Delete {folder}, and fit again to train it anew.")


#: What Python, numpy, scipy and torch raise when tensors are missing, or of shapes that do not go together.
DAMAGE = (SettingsError, KeyError, IndexError, ValueError, TypeError, AttributeError, RuntimeError, OverflowError)


_LONGEST_REASON = 300


@contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Say of which folder it is if a model cannot be built from its files."""
    try:
        yield
    except DataError as error:
        if str(folder) in str(error):
            raise
        raise DataError(f"the model in {folder} cannot be used: {error}") from error
    except DAMAGE as error:
        raise DataError(
            f"the model in {folder} is damaged: {reason_of(error)}. Copy it again from where it came from, or delete "
            "the folder and fit again."
        ) from error


def reason_of(error: Exception) -> str:
    """What one of these errors says, in a line without a full stop."""
    said = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:_LONGEST_REASON]
    return said.removesuffix(".")


def array_of(
    tensors: "Mapping[str, Tensor]", name: str, shape: tuple[int | None, ...], *, low: int = 0, below: int | None = None
) -> Array:
    """A tensor of a file as an array, if it has this shape; None stands for any length.

    With `below`, its values must be whole numbers from `low` that are smaller than it, otherwise finite floats.
    """
    array: Array = tensors[name].numpy()
    if len(array.shape) != len(shape) or any(want not in (None, has) for has, want in zip(array.shape, shape)):  # noqa: B905
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    if below is not None and (
        array.dtype.kind not in "iu" or (array.size and not low <= array.min() <= array.max() < below)
    ):
        raise ValueError(f"{name} has {array.dtype} values, expected whole numbers from {low} to {below - 1:,}")
    if below is None and (array.dtype.kind != "f" or not np.isfinite(array).all()):
        raise ValueError(f"{name} has {array.dtype} values, expected finite floats")
    return array
