"""What a section of the page consists of."""

from collections.abc import Sequence
from dataclasses import dataclass

from cascader.report.plots import Chart


@dataclass(frozen=True)
class Figure:
    """A chart, and a sentence that says how to read it and what it shows here."""

    chart: Chart
    caption: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `share` is how long a bar behind it is, from 0 to 1."""

    text: str
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells; the columns named in `numbers` are set flush right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: Sequence[str] = ()
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a title of its own."""

    name: str
    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


def mrr_text(value: float | None) -> str:
    """A figure between 0 and 1."""
    return "" if value is None else f"{value:.4f}"


def joined(tiers: Sequence[str]) -> str:
    """Tiers that work together, as one name."""
    return " + ".join(tiers)


def seconds_text(value: float | None) -> str:
    """A time for a person, short or long.

    >>> seconds_text(0.00123), seconds_text(2.5), seconds_text(1234)
    ('1.2 ms', '2.5 s', '1,234 s')
    """
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * value:.2g} ms" if value < 0.1 else f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
