"""The main evaluation by kind of query."""

from collections.abc import Mapping, Sequence
from typing import Any

from cascader.evaluation import METRICS, Evaluation, Metrics
from cascader.graph import KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.section import Cell, Numbers, Section, Table, mrr_text

TITLE = "By kind of query"
_MAX_LABELS = 20
_HITS = ("hits@1", "hits@3", "hits@10")
#: For each way to slice, the heading of its first column and its caption.
_WAYS = {
    "side": ("predicted side", "By the side that is predicted."),
    "relation_kind": (
        "relation kind",
        "By how many heads and tails a relation joins; n means more than 1.5 on average in train.",
    ),
    "gold_degree": ("degree", "By the number of train triples that contain the gold answer."),
    "seen_in_train": (
        "seen in train",
        "By whether the given entity (anchor) and the gold answer occur in train.",
    ),
    "relation": ("relation", f"By relation: the {_MAX_LABELS} with the most queries."),
}


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The main evaluation by side, relation, relation kind, degree of the gold answer, and what train contains."""
    if not inputs.evaluations:
        return skipped("The run has not been evaluated yet. Evaluate it with: cascader evaluate RUN")
    main = max(inputs.evaluations, key=_importance)
    ways = {way: _rows(way, labels, inputs.kg) for way, labels in main.slices.items()}
    return {"evaluation": main.name, "split": main.split, "mrr": main.mrr, "ways": ways}


def _importance(evaluation: Evaluation) -> tuple[bool, bool, int, float]:
    """Test before valid, cascades before sums, sums before single tiers, then the higher MRR."""
    name = evaluation.name
    return evaluation.split == "test", name.startswith("cascade"), name.count("+"), evaluation.mrr


def _rows(way: str, labels: Mapping[str, Metrics], kg: KnowledgeGraph) -> list[dict[str, Any]]:
    names = {relation.id: relation.name for relation in kg.relations} if way == "relation" else {}
    rows: list[dict[str, Any]] = [
        {"label": names.get(label, label), "queries": metrics.queries, **{name: metrics[name] for name in METRICS}}
        for label, metrics in labels.items()
    ]
    if way == "gold_degree":  # "3-9", "10-29", "300+"
        return sorted(rows, key=lambda row: int(row["label"].rstrip("+").split("-")[0]))
    return sorted(rows, key=lambda row: (-row["queries"], row["label"]))[:_MAX_LABELS]


def section(numbers: Numbers) -> Section:
    """A table for each way to slice the queries."""
    ways = numbers["ways"]
    text = (
        f"{numbers['evaluation']} on {numbers['split']}, MRR {mrr_text(numbers['mrr'])} over all queries. Kinds of "
        "queries with a lower MRR are harder than average."
    )
    return Section(TITLE, [text], tables=[_table(way, ways[way]) for way in _WAYS if ways.get(way)])


def _table(way: str, rows: Sequence[Numbers]) -> Table:
    label, caption = _WAYS[way]
    columns = [label, "MRR", *_HITS, "queries"]
    cells = [
        [
            row["label"],
            Cell(mrr_text(row["mrr"]), row["mrr"]),
            *(mrr_text(row[hits]) for hits in _HITS),
            f"{row['queries']:,}",
        ]
        for row in rows
    ]
    return Table(columns, cells, numbers=columns[1:], caption=caption)
