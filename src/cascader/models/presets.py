"""Settings that are known to work, and what a search may try, as data: .toml files beside the models they belong to."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from cascader.errors import SettingsError

_LANGUAGE_TIERS = ("dual", "cross")


@cache
def read_table(package: str, name: str = "presets.toml") -> dict[str, Any]:
    """A .toml file that comes with a package of models."""
    return tomllib.loads(files(f"cascader.models.{package}").joinpath(name).read_text(encoding="utf-8"))


def preset(model: str, name: str, dataset: str = "") -> dict[str, Any]:
    """The settings of a model under a preset's name, with what is known to suit the dataset on top."""
    table = read_table("text" if model in _LANGUAGE_TIERS else "embeddings")
    everywhere = table["any"].get(model, {})
    if name not in everywhere:
        raise SettingsError(f"{model} has no preset {name!r}. Choose one of: {', '.join(everywhere) or 'none'}.")
    here = table.get(dataset, {}).get(model, {})
    return {**everywhere[name], **here.get(name, {})}


def search_space(model: str) -> dict[str, Any]:
    """What a search may change of a model's settings: a list of values, or the bounds of a number."""
    space: dict[str, Any] = read_table("embeddings", "search_spaces.toml")[model]
    return space
