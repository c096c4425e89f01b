"""The building blocks of a section: text, charts and tables, and how numbers, tiers and pruners are written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cascader.graph import FloatArray
from cascader.report.inputs import ReportInputs

#: A section's numbers as `report.json` holds them.
Numbers = Mapping[str, Any]
Scale = Literal["linear", "log"]
#: A line with markers, a plain line, a dashed line, or markers alone.
Look = Literal["marked", "plain", "dashed", "marks"]

#: The page defines this many colors, light and dark.
SERIES_COLORS = 6
_MIN_SAMPLES = 3  # a line through two points always fits
#: The order and colors of the kinds we know; others follow by name.
_KNOWN_KINDS = ("top_k", "static", "dynamic", "conformal", "budgeted")
_LABELS = {"top_k": "same for all"}


@dataclass(frozen=True)
class Series:
    """Points of one color: a number, counted modulo SERIES_COLORS, or None for the color of the text."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: int | None
    look: Look = "marked"
    spread: Sequence[tuple[float, float]] = ()  # the lower and upper end of the band at each point


@dataclass(frozen=True)
class Chart:
    """What to draw; `name` must be unique on the page, and `title` is what a screen reader says."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_scale: Scale = "linear"
    x_ticks: Sequence[str] = ()  # labels for x = 0, 1, 2, … where x is a category


@dataclass(frozen=True)
class Figure:
    """A chart with a caption that says how to read it and what it shows."""

    chart: Chart
    caption: str


@dataclass(frozen=True)
class Cell:
    """A table cell; `share`, from 0 to 1, is the length of the bar in front of the text."""

    text: str
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells; the columns listed in `numbers` are right-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: Sequence[str] = ()
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A titled part of the page."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Part:
    """A section to be: its key in `report.json`, its title, what computes its numbers, and what writes it from them."""

    key: str
    title: str
    numbers: Callable[[ReportInputs], dict[str, Any]]  # what the section shows, or `skipped(reason)`
    section: Callable[[Numbers], Section]  # the section, made from its numbers alone

    def write(self, numbers: Numbers) -> Section:
        """The section, or one sentence that says why it was skipped."""
        if "skipped" in numbers:
            return Section(self.title, [f"Skipped: {numbers['skipped']}"])
        return self.section(numbers)


def skipped(reason: str) -> dict[str, str]:
    """The numbers of a section that cannot be computed: one sentence that says why."""
    return {"skipped": reason}


def pearson(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's correlation coefficient; None if either side is constant or there are too few samples.

    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    1.0
    """
    if len(first) < _MIN_SAMPLES or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1].round(12))


def mrr_text(value: float | None) -> str:
    """Format a metric between 0 and 1."""
    return "" if value is None else f"{value:.4f}"


def coefficient_text(value: float | None, digits: int) -> str:
    """Format a correlation coefficient."""
    return "undefined" if value is None else f"{value:.{digits}f}"


def joined(tiers: Sequence[str]) -> str:
    """Join the names of tiers that work together."""
    return " + ".join(tiers)


def seconds_text(value: float | None) -> str:
    """Format a duration, from milliseconds to thousands of seconds.

    >>> seconds_text(0.00123), seconds_text(2.5), seconds_text(1234)
    ('1.2 ms', '2.5 s', '1,234 s')
    """
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * value:.2g} ms" if value < 0.1 else f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def kind_label(kind: str) -> str:
    """How a chart's legend names a kind of pruner.

    >>> kind_label("top_k"), kind_label("never_seen")
    ('same for all', 'never seen')
    """
    return _LABELS.get(kind, kind.replace("_", " "))


def colors_by_kind(kinds: Iterable[str]) -> dict[str, int]:
    """A series number for each kind that occurs, in the order of the legend; the kinds we know keep their color.

    >>> colors_by_kind(["never_seen", "dynamic", "top_k"])
    {'top_k': 0, 'dynamic': 2, 'never_seen': 5}
    """
    found = set(kinds) - {"everyone"}
    every_kind = [*_KNOWN_KINDS, *sorted(found.difference(_KNOWN_KINDS))]
    return {kind: color for color, kind in enumerate(every_kind) if kind in found}
