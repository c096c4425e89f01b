"""Settings that are known to work, and what a search may try, as data: presets.toml and search_spaces.toml."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from cascader.errors import SettingsError

#: From the fastest to the most thorough.
PRESETS = ("quick", "balanced", "best")


@cache
def read_presets() -> dict[str, Any]:
    """The settings by dataset, kind of model and preset; `any` holds for every dataset."""
    return _read("presets.toml")


def preset(model: str, name: str, dataset: str = "") -> dict[str, Any]:
    """The settings of a kind of model under a preset's name, adapted to the dataset where that is known to help.

    A kind without presets of its own has no settings to change: it is the same under each of them.
    """
    if name not in PRESETS:
        raise SettingsError(f"there is no preset {name!r}. Choose one of: {', '.join(PRESETS)}.")
    table = read_presets()
    everywhere, here = (table.get(part, {}).get(model, {}) for part in ("any", dataset))
    return {**everywhere.get(name, {}), **here.get(name, {})}


def search_space(model: str) -> dict[str, Any]:
    """What a search may change in a model's settings: a list of values, or the bounds of a number."""
    space: dict[str, Any] = _read("search_spaces.toml")[model]
    return space


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("cascader.models").joinpath(name).read_text(encoding="utf-8"))
