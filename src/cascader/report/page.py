"""The report as two files: the numbers, and one self-contained page drawn from them."""

from importlib.resources import files
from pathlib import Path

from cascader.report.plots import draw
from cascader.report.section import Numbers
from cascader.report.sections import write_sections
from cascader.storage import write_json, write_text


def write_report(folder: str | Path, numbers: Numbers) -> Path:
    """Write `report.json` and `report.html` into a folder, and return the path of the page."""
    folder = Path(folder)
    page = render(numbers)
    write_json(folder / "report.json", numbers)
    write_text(folder / "report.html", page)
    return folder / "report.html"


def render(numbers: Numbers) -> str:
    """Draw the page; equal numbers give equal bytes."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # All text is escaped, except our own style sheet and charts, whose text `draw` escapes.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["drawn"] = lambda chart: Markup(draw(chart))
    return environment.from_string(_text("page.html")).render(
        graph=numbers["graph"],
        version=numbers["version"],
        sections=write_sections(numbers),
        style=Markup(_text("page.css")),
    )


def _text(name: str) -> str:
    return files("cascader.report").joinpath(name).read_text(encoding="utf-8")
