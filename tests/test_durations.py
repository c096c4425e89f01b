"""Durations: what is understood, and what is not."""

import math

import pytest

from cascader.durations import format_duration, parse_duration
from cascader.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5 H", 5400), ("1h 5s", 3605)]
)
def test_a_number_with_a_unit_is_a_duration(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("value", "seconds"), [(90, 90.0), (0.5, 0.5), (math.inf, math.inf), (None, math.inf)])
def test_a_number_is_seconds_and_none_is_no_limit(value, seconds):
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "soon", "30", "-5m", "m", "3d", "5m!", "1e3s", "inf", "nan h", 0, -1.5, math.nan]
)
def test_anything_else_is_refused_with_what_was_found_and_what_is_expected(text):
    with pytest.raises(SettingsError, match="is not a duration, expected more than 0 seconds") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.2, "1 s"), (59.5, "1 min"), (61, "1 min 1 s"), (9000, "2 h 30 min")],
)
def test_durations_are_formatted_for_people(seconds, words):
    assert format_duration(seconds) == words
