"""The building blocks of a section: text, figures and tables, and how numbers are written in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cascader.report.plots import Chart

#: A section's numbers as `report.json` holds them.
Numbers = Mapping[str, Any]


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
