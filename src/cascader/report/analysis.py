"""All numbers of a report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import cascader
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.sections import compute_sections
from cascader.scoring.scorer import Scorer
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
