"""The numbers of a report, and the page that is drawn from them alone.

Charts are inline SVG: colors come from the page, text stays text, and equal charts give equal bytes.
"""

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cascader
from cascader.datasets.tables import write_rows
from cascader.errors import DataError
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.section import SERIES_COLORS, Cell, Chart, Look, Numbers, Series
from cascader.report.sections import compute_sections, write_sections
from cascader.scoring.scorer import Scorer
from cascader.storage import read_json, remove, write_json, write_text
from cascader.tuning import TuningResult
from cascader.tuning.calibration import Calibration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 1
_TABLE = re.compile("[a-z][a-z0-9_-]*")


def analyze(
    kg: KnowledgeGraph,
    scorers: Mapping[str, Scorer],
    tuned: TuningResult | None,
    evaluations: Sequence[Evaluation],
    models: Mapping[str, Mapping[str, Any]],
    *,
    calibration: Calibration | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute all numbers of a report; a section that cannot be computed says why under "skipped".

    `scorers` holds the tiers by name, the first tier first; `models` describes each tier, as `Run.describe_tiers`
    does; `tuned` is None if there was no valid split; `calibration` is None if answers have no
    probabilities; `seed` is the one that tuning used.
    """
    inputs = ReportInputs(kg, scorers, tuned, evaluations, models, seed, calibration)
    numbers = {"graph": _describe_graph(kg), **compute_sections(inputs)}
    return {"format": FORMAT, "version": cascader.__version__, **jsonable(numbers)}


def _describe_graph(kg: KnowledgeGraph) -> dict[str, Any]:
    return {
        "name": kg.name,
        "entities": len(kg.entities),
        "relations": len(kg.relations),
        "triples": {split: len(kg.split(split)) for split in SPLITS},
        "data_hash": kg.data_hash,
    }


def jsonable(value: object) -> Any:  # noqa: ANN401 - anything that JSON can hold once NumPy's types are gone
    """Convert NumPy values to plain Python with six significant digits; NaN and infinity become None.

    >>> jsonable({"mrr": np.float64(0.123456789), "k": [np.int64(3), np.inf]})
    {'mrr': 0.123457, 'k': [3, None]}
    """
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [jsonable(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def write_report(folder: str | Path, numbers: Numbers) -> Path:
    """Write `report.json`, `report.html` and `tables/*.csv` into a folder, and return the path of the page.

    Of what the folder has, only the files of an earlier report are replaced or removed.
    """
    folder = Path(folder)
    page, tables = render(numbers), dict(_tables(numbers))
    for name in _earlier_tables(folder) - tables.keys():
        remove(_table_file(folder, name))
    write_json(folder / "report.json", {**numbers, "tables": list(tables)})
    for name, rows in tables.items():
        written = io.StringIO()
        write_rows(written, rows, ",")
        write_text(_table_file(folder, name), written.getvalue())
    write_text(folder / "report.html", page)
    return folder / "report.html"


def _table_file(folder: Path, name: str) -> Path:
    return folder / "tables" / f"{name}.csv"


def _earlier_tables(folder: Path) -> set[str]:
    """The tables that an earlier report has written here, by its own account; a report of others is none."""
    if not (folder / "report.json").exists():
        return set()
    try:
        names = read_json(folder / "report.json").get("tables")
    except DataError:
        return set()
    return {name for name in names if _TABLE.fullmatch(str(name))} if isinstance(names, list) else set()


def _tables(numbers: Numbers) -> Iterator[tuple[str, list[list[str]]]]:
    """All that the page shows, by name: each table as its header and rows, each chart as the points of its series."""
    for key, section in write_sections(numbers).items():
        for number, table in enumerate(section.tables, start=1):
            rows = [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]
            yield key if number == 1 else f"{key}-{number}", [list(table.columns), *rows]
        for chart in (figure.chart for figure in section.figures):
            points = [row for series in chart.series for row in _points(series, chart.x_ticks)]
            yield f"{chart.name}-chart", [["series", chart.x_label, chart.y_label, "from", "to"], *points]


def _points(series: Series, ticks: Sequence[str]) -> Iterator[list[str]]:
    """One row for each point: where a band is drawn, it reaches from one of the last two to the other."""
    bands = [[f"{low:.6g}", f"{high:.6g}"] for low, high in series.spread] or [["", ""]] * len(series.x)
    for x, y, band in zip(series.x, series.y, bands, strict=True):
        yield [series.label, ticks[int(x)] if ticks else f"{x:.6g}", f"{y:.6g}", *band]


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


# Charts.

#: Two columns of longer names would not fit below a chart.
_LONG_NAME = 30
_LINE_INCHES = 0.17
_INCHES = (4.4, 3.4)
_FEW_DECADES = 300  # a log axis that spans less than this factor has room for more tick labels
#: Placeholders for colors that the page defines, light and dark; matplotlib insists on real colors.
_CODES = {
    "currentColor": "#010203",
    **{f"var(--series-{number})": f"#a1b2c{number}" for number in range(SERIES_COLORS)},
}
_INK = _CODES["currentColor"]
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may contain a dollar sign
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{f"{part}.color": _INK for part in ("text", "xtick", "ytick", "grid")},
    **{f"axes.{part}": _INK for part in ("edgecolor", "labelcolor")},
    "axes.grid": True,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}
_LOOKS: dict[Look, dict[str, Any]] = {
    "marked": {"marker": "o"},
    "plain": {},
    "dashed": {"linestyle": "--", "linewidth": 1.2},
    "marks": {"linestyle": "none", "marker": "o", "markersize": 9, "markeredgewidth": 1.5},
}


def draw(chart: Chart) -> str:
    """Draw a chart as an svg element that can be embedded in the page as it is."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it announces its search for fonts
    import matplotlib
    from matplotlib.figure import Figure

    written = io.StringIO()
    settings: Any = {**_SETTINGS, "svg.hashsalt": chart.name}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser will find a font that has it
        columns = 1 if max((len(series.label) for series in chart.series), default=0) > _LONG_NAME else 2
        width, height = _INCHES
        extra = _LINE_INCHES * len(chart.series) if columns == 1 else 0.0
        figure = Figure(figsize=(width, height + extra), layout="constrained")
        axes = figure.add_subplot()
        for series in chart.series:
            _add(axes, series)
        _label(axes, chart)
        if len(chart.series) > 1:
            figure.legend(loc="outside lower center", ncols=columns, fontsize=9)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return _in_page(written.getvalue(), chart)


def _add(axes: "Axes", series: Series) -> None:
    color = _INK if series.color is None else _CODES[f"var(--series-{series.color % SERIES_COLORS})"]
    look = dict(_LOOKS[series.look])
    if series.look == "marks":
        look |= {"markerfacecolor": "none", "markeredgecolor": color}
    axes.plot(list(series.x), list(series.y), color=color, label=_printable(series.label), **look)
    if series.spread:
        lows, highs = zip(*series.spread, strict=True)
        axes.fill_between(list(series.x), lows, highs, color=color, alpha=0.15, linewidth=0)


def _label(axes: "Axes", chart: Chart) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.set_xscale(chart.x_scale)
    if chart.x_scale == "log":
        low, high = axes.get_xlim()
        steps = (1, 2, 5) if high < _FEW_DECADES * low else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.xaxis.set_minor_formatter(lambda *_: "")
    if chart.x_ticks:
        axes.set_xticks(range(len(chart.x_ticks)), [_printable(tick) for tick in chart.x_ticks])


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _in_page(svg: str, chart: Chart) -> str:
    """Strip what only a standalone file needs, make ids unique, and add the page's colors and font and a title."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<style.*?</style>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None  # noqa: S101 - matplotlib always writes one
    title = f"{chart.name}-title"
    opening = f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{title}"><title id="{title}">'
    svg = opening + escape(chart.title) + "</title>" + svg[svg.index(">") + 1 :]
    svg = re.sub(r'(?<=\bid=")(?!' + re.escape(title) + ")", f"{chart.name}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{chart.name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{chart.name}-", svg)
    svg = re.sub(r"""'DejaVu Sans'[^;"]*""", "system-ui, sans-serif", svg)
    for name, code in _CODES.items():
        svg = svg.replace(code, name)
    return svg.strip()
