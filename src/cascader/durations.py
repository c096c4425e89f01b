"""Durations as people write and read them."""

import math
import re

from cascader.errors import SettingsError

_UNITS = {"s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smh])")


def parse_duration(value: float | str | None) -> float:
    """A duration in seconds: a number of seconds, or a string with units. None means no limit.

    >>> parse_duration("30m"), parse_duration("1h30m"), parse_duration(90), parse_duration(None)
    (1800.0, 5400.0, 90.0, inf)
    """
    if value is None:
        return math.inf
    seconds = _parse_text(value) if isinstance(value, str) else float(value)
    if not seconds > 0:  # NaN is not, either
        raise SettingsError(
            f"{value!r} is not a duration, expected more than 0 seconds: a number of seconds, or a string with "
            "units such as '90s', '30m', '2h' or '1h30m'."
        )
    return seconds


def _parse_text(text: str) -> float:
    """The seconds in `text`, or NaN if any part of it is not a number with a unit."""
    parts = _PART.findall(text.lower())
    is_complete = re.sub(r"\s", "", text.lower()) == "".join(f"{number}{unit}" for number, unit in parts)
    seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    return seconds if is_complete and math.isfinite(seconds) else math.nan


def format_duration(seconds: float) -> str:
    """A duration for people to read, rounded up to whole seconds.

    >>> format_duration(0.4), format_duration(75), format_duration(7260)
    ('1 s', '1 min 15 s', '2 h 1 min')
    """
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
