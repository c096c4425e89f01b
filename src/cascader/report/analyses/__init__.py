"""The numbers of a report: one function an analysis, each from the same material to what JSON can hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cascader
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.report.analyses.correlations import correlations
from cascader.report.analyses.coverage import coverage
from cascader.report.analyses.distributions import distributions
from cascader.report.analyses.jsonable import plain
from cascader.report.analyses.reliability import reliability
from cascader.report.analyses.results import main_table, slices
from cascader.report.analyses.reweighting import margins, reweighting
from cascader.report.analyses.tiers import about_tiers, tiers
from cascader.report.analyses.trade_offs import budgets, pareto
from cascader.report.inputs import Material
from cascader.scoring.scorer import Scorer
from cascader.tuning import TuningResult
from cascader.tuning.calibration import Calibration

__all__ = ["ANALYSES", "about_tiers", "analyse"]

FORMAT = 1

ANALYSES: dict[str, Callable[[Material], dict[str, Any]]] = {
    "main_table": main_table,
    "pareto": pareto,
    "budgets": budgets,
    "reweighting": reweighting,
    "margins": margins,
    "correlations": correlations,
    "distributions": distributions,
    "coverage": coverage,
    "reliability": reliability,
    "tiers": tiers,
    "slices": slices,
}


def analyse(
    kg: KnowledgeGraph,
    scorers: Mapping[str, Scorer],
    tuned: TuningResult | None,
    evaluations: Sequence[Evaluation],
    models: Mapping[str, Mapping[str, Any]],
    *,
    calibration: Calibration | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """All numbers of a report; an analysis that cannot be made says why under "left_out".

    `scorers` are the tiers by name, the first tier first; `models` is what each has to tell of itself, as `about_tiers`
    gives it; `tuned` is None where there was no valid; `calibration` is that of the answers people get, None where they
    have no probabilities; `seed` is the one that tuning had.
    """
    material = Material(kg, scorers, tuned, evaluations, models, seed, calibration)
    numbers = {"graph": _graph(kg), **{name: analysis(material) for name, analysis in ANALYSES.items()}}
    return {"format": FORMAT, "version": cascader.__version__, **plain(numbers)}


def _graph(kg: KnowledgeGraph) -> dict[str, Any]:
    return {
        "name": kg.name,
        "entities": len(kg.entities),
        "relations": len(kg.relations),
        "triples": {split: len(kg.split(split)) for split in SPLITS},
        "data_hash": kg.data_hash,
    }
