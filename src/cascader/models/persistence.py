"""A model's folder: `model.json` says what it is, `model.safetensors` holds what it has learnt."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cascader.errors import DataError
from cascader.storage import read_json, read_tensors, write_json, write_tensors


def write_model(
    folder: Path,
    name: str,
    model_format: int,
    settings: Mapping[str, Any],
    history: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write `model.safetensors`, then `model.json`: where that one is, the model is whole."""
    write_tensors(folder / "model.safetensors", tensors)
    saved = {"format": model_format, "model": name, "settings": settings, "history": history}
    write_json(folder / "model.json", saved)


def read_model(
    folder: Path, names: str | Collection[str], expected_format: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read both files, after a look at whether they are of this kind and version."""
    known = [names] if isinstance(names, str) else list(names)
    saved = read_json(folder / "model.json")
    if saved.get("format") != expected_format or saved.get("model") not in known:
        raise DataError(
            f"{folder / 'model.json'} has format {saved.get('format')!r} and model {saved.get('model')!r}, expected "
            f"format {expected_format} and one of {', '.join(known)}. Was it written by another version of cascader?"
        )
    return saved, read_tensors(folder / "model.safetensors")[0]
