"""The settings of a model in one frozen value, every bound beside the field it bounds, and presets that work."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from cascader.errors import SettingsError

#: From the fastest to the most thorough.
PRESETS = ("quick", "balanced", "best")


@dataclass(frozen=True)
class Between:
    """The bounds of a number, both included: `dim: Annotated[int, Between(1, 100_000)] = 200`."""

    low: float
    high: float


@dataclass(frozen=True)
class Settings:
    """The base of all settings; a subclass is a frozen dataclass in which every field has a default.

    Numbers are `Annotated[int, Between(...)]` or `Annotated[float, Between(...)]`, choices are a `Literal`, and what is
    on or off is a `bool`.
    """

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            _check(name, getattr(self, name), hint)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build the settings from a mapping of names to values."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise SettingsError(_unknown(name, known))
        return cls(**settings)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """The type of each setting without its bounds: `int`, `float`, `str`, `bool`, or a `Literal`."""
        return {name: _bare(hint) for name, hint in _hints(cls).items()}


def _hints(settings: type[Settings]) -> dict[str, Any]:
    hints = get_type_hints(settings, include_extras=True)
    return {field.name: hints[field.name] for field in fields(settings)}


def _bare(hint: object) -> Any:  # noqa: ANN401 - types are values of any type
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _check(name: str, value: object, hint: object) -> None:
    """Check one value against the annotation of its field."""
    kind = _bare(hint)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise SettingsError(f"{name} is {value!r}, expected one of: {', '.join(map(str, get_args(kind)))}.")
    if kind is bool and not isinstance(value, bool):
        raise SettingsError(f"{name} is {value!r}, expected true or false.")
    if kind is str and not isinstance(value, str):
        raise SettingsError(f"{name} is {value!r}, expected a string.")
    for bounds in getattr(hint, "__metadata__", ()):
        _check_number(name, value, bounds, is_whole=kind is int)


def _check_number(name: str, value: object, bounds: Between, is_whole: bool) -> None:
    kinds = (int,) if is_whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not bounds.low <= value <= bounds.high:
        kind = "a whole number" if is_whole else "a number"
        raise SettingsError(f"{name} is {value!r}, expected {kind} from {bounds.low:g} to {bounds.high:g}.")


def _unknown(name: str, known: list[str]) -> str:
    """The message for a setting that does not exist; a British spelling is answered with the American one."""
    if not known:
        return f"there is no setting {name!r}: this model has none. Remove it."
    american = re.sub(r"is(?=e|ation)", "iz", name).replace("our", "or")
    if american in known:
        return f"there is no setting {name!r}. Use the American spelling: {american}."
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no setting {name!r}.{hint} The settings are: {', '.join(known)}."


@cache
def read_presets() -> dict[str, Any]:
    """The settings by dataset or size, kind of model and preset; `any` holds for every dataset."""
    return _read("presets.toml")


#: The presets of graphs with fewer entities than this differ where less work does as well.
_FEW_ENTITIES, _SMALL = 500, "small graphs"
#: From how many entities the settings of a graph are those for its size, the largest last.
SIZES = {"large": 10_000, "huge": 200_000}


def preset(model: str, name: str, dataset: str = "", entity_count: int = _FEW_ENTITIES) -> dict[str, Any]:
    """The settings of a kind of model under a preset's name, adapted to the graph where that is known to help.

    A dataset that has no settings of its own has those for its size. A kind without presets of its own has no settings
    to change: it is the same under each of them.

    >>> [preset("complex", "quick", entity_count=count).get("loss") for count in (5_000, 50_000)]
    [None, '1-vs-sample']
    """
    if name not in PRESETS:
        raise SettingsError(f"there is no preset {name!r}. Choose one of: {', '.join(PRESETS)}.")
    table = read_presets()
    small = [_SMALL] if entity_count < _FEW_ENTITIES else []
    large = [size for size, least in SIZES.items() if entity_count >= least]
    has_own = dataset in table and dataset not in ("any", _SMALL, *SIZES)
    parts = ["any", *small, *([dataset] if has_own else large)]
    found: dict[str, Any] = {}
    for part in parts:
        found |= table.get(part, {}).get(model, {}).get(name, {})
    return found


def search_space(model: str) -> dict[str, Any]:
    """What a search may change in a model's settings: a list of values, or the bounds of a number."""
    space: dict[str, Any] = _read("search_spaces.toml")[model]
    return space


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("cascader.models").joinpath(name).read_text(encoding="utf-8"))
