"""All numbers of a report."""

from collections.abc import Mapping, Sequence
from typing import Any

import cascader
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import jsonable
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
