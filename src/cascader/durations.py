"""Durations as people write and read them."""

import math
import re

from cascader.errors import SettingsError

_UNITS = {"s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")


def parse_duration(text: str) -> float:
    """The seconds of a duration with its units.

    >>> parse_duration("30m"), parse_duration("1h30m"), parse_duration("90s")
    (1800.0, 5400.0, 90.0)
    """
    parts = _PART.findall(text.lower())
    complete = re.sub(r"\s", "", text.lower()) == "".join(f"{number}{unit}" for number, unit in parts)
    seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    if not parts or not complete or not 0 < seconds < math.inf:
        raise SettingsError(
            f"{text!r} is no duration to plan with, expected more than nothing, with a unit: 90s, 30m, 2h or 1h30m."
        )
    return seconds


def in_words(seconds: float) -> str:
    """A duration to be read.

    >>> in_words(0.4), in_words(75), in_words(7260)
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
