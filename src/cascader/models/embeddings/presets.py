"""Settings that are known to work, and what a search may try, as data: see the two .toml files beside this one."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from cascader.errors import SettingsError


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files("cascader.models.embeddings").joinpath(name).read_text(encoding="utf-8"))


def preset(model: str, name: str, dataset: str = "") -> dict[str, Any]:
    """The settings of a model under a preset's name, with what is known to suit the dataset on top."""
    everywhere = _table("presets.toml")["any"].get(model, {})
    if name not in everywhere:
        raise SettingsError(f"{model} has no preset {name!r}. Choose one of: {', '.join(everywhere) or 'none'}.")
    here = _table("presets.toml").get(dataset, {}).get(model, {})
    return {**everywhere[name], **here.get(name, {})}


def search_space(model: str) -> dict[str, Any]:
    """What a search may change of a model's settings: a list of values, or the bounds of a number."""
    space: dict[str, Any] = _table("search_spaces.toml")[model]
    return space
