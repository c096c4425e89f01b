"""The numbers of a report, and the page that is drawn from them alone."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import cascader
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.plots import draw
from cascader.report.section import Numbers
from cascader.report.sections import compute_sections, write_sections
from cascader.scoring.scorer import Scorer
from cascader.storage import write_json, write_text
from cascader.tuning import TuningResult
from cascader.tuning.calibration import Calibration

FORMAT = 1


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
