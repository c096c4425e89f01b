"""Figures of all evaluations of a run, and of the main one by kinds of queries."""

from collections.abc import Mapping
from typing import Any

from cascader.evaluation import METRICS, Evaluation, Metrics
from cascader.evaluation.tables import published_mrr
from cascader.graph import KnowledgeGraph
from cascader.report.analyses.jsonable import left_out
from cascader.report.inputs import Material

NO_RESULTS = "The run has not been measured yet. Measure it with: cascader evaluate RUN"
_LABELS_AT_MOST = 20


def main_table(material: Material) -> dict[str, Any]:
    """The figures of every evaluation, test first, then the best first; with the paper's beside them."""
    if not material.evaluations:
        return left_out(NO_RESULTS)
    ordered = sorted(material.evaluations, key=lambda found: (found.split != "test", -found.mrr, found.name))
    return {"rows": [_row(evaluation) for evaluation in ordered]}


def _row(evaluation: Evaluation) -> dict[str, Any]:
    is_test = evaluation.split == "test"  # the paper's figures are those of test
    return {
        "name": evaluation.name,
        "split": evaluation.split,
        **evaluation.metrics.as_dict(),
        "mrr_interval": list(evaluation.intervals["mrr"]),
        "published_mrr": published_mrr(evaluation.dataset, evaluation.name) if is_test else None,
        "seconds": evaluation.seconds,
        "costs": _costs(evaluation.about),
    }


def _costs(about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each tier has scored, and how long it took; nothing where nobody counted."""
    costs = about.get("costs")
    if not isinstance(costs, dict):
        return {}
    return {tier: {"calls": cost.get("calls"), "seconds": cost.get("seconds")} for tier, cost in costs.items()}


def slices(material: Material) -> dict[str, Any]:
    """The main evaluation by side, relation, kind of relation, degree of the gold answer, and what train showed."""
    if not material.evaluations:
        return left_out(NO_RESULTS)
    main = max(material.evaluations, key=_importance)
    ways = {way: _slices(way, labels, material.kg) for way, labels in main.slices.items()}
    return {"evaluation": main.name, "split": main.split, "mrr": main.mrr, "ways": ways}


def _importance(evaluation: Evaluation) -> tuple[bool, bool, int, float]:
    """Test before valid, the cascade before sums, sums before single tiers; of equals the better one."""
    name = evaluation.name
    return evaluation.split == "test", name.startswith("cascade"), name.count("+"), evaluation.mrr


def _slices(way: str, labels: Mapping[str, Metrics], kg: KnowledgeGraph) -> list[dict[str, Any]]:
    names = {relation.id: relation.name for relation in kg.relations} if way == "relation" else {}
    rows: list[dict[str, Any]] = [
        {"label": names.get(label, label), "queries": metrics.queries, **{name: metrics[name] for name in METRICS}}
        for label, metrics in labels.items()
    ]
    if way == "gold_degree":  # "3-9", "10-29", "300+"
        return sorted(rows, key=lambda row: int(row["label"].rstrip("+").split("-")[0]))
    return sorted(rows, key=lambda row: (-row["queries"], row["label"]))[:_LABELS_AT_MOST]
