"""Settings that are known to work, as data: see presets.toml beside this file."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from cascader.errors import SettingsError


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("cascader.models.embeddings").joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(model: str, name: str, dataset: str = "") -> dict[str, Any]:
    """The settings of a model under a preset's name, with what is known to suit the dataset on top."""
    everywhere = _table()["any"].get(model, {})
    if name not in everywhere:
        raise SettingsError(f"{model} has no preset {name!r}. Choose one of: {', '.join(everywhere) or 'none'}.")
    here = _table().get(dataset, {}).get(model, {})
    return {**everywhere[name], **here.get(name, {})}
