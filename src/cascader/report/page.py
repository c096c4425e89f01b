"""The report as two files: the numbers, and one page that needs no other file."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from cascader.report.plots import draw
from cascader.report.sections import sections_of
from cascader.storage import write_json, write_text


def write_report(folder: str | Path, analyses: Mapping[str, Any]) -> Path:
    """Write `report.json`, then `report.html`, and return the latter's path."""
    folder = Path(folder)
    page = render(analyses)
    write_json(folder / "report.json", analyses)
    write_text(folder / "report.html", page)
    return folder / "report.html"


def render(analyses: Mapping[str, Any]) -> str:
    """The page: the same numbers give the same bytes."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # All texts are escaped; only our own style sheet and charts stand in the page as they are.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["drawn"] = lambda chart: Markup(draw(chart))  # draw escapes
    return environment.from_string(_text("page.html")).render(
        graph=analyses["graph"],
        version=analyses["version"],
        sections=sections_of(analyses),
        style=Markup(_text("page.css")),  # a file of ours
    )


def _text(name: str) -> str:
    return files("cascader.report").joinpath(name).read_text(encoding="utf-8")
