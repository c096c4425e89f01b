"""Every evaluation of a run in one table, with the paper's figures beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from cascader.evaluation import Evaluation
from cascader.evaluation.tables import published_mrr
from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.section import Cell, Numbers, Section, Table, mrr_text, seconds_text

TITLE = "Results"
_HITS = ("hits@1", "hits@3", "hits@10")


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The metrics of every evaluation, test first, then by MRR."""
    if not inputs.evaluations:
        return skipped("The run has not been evaluated yet. Evaluate it with: cascader evaluate RUN")
    ordered = sorted(inputs.evaluations, key=lambda found: (found.split != "test", -found.mrr, found.name))
    return {"rows": [_row(evaluation) for evaluation in ordered]}


def _row(evaluation: Evaluation) -> dict[str, Any]:
    is_test = evaluation.split == "test"  # the paper reports test only
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
    """The scores that each tier computed and the time it took; empty if nothing was counted."""
    costs = about.get("costs")
    if not isinstance(costs, dict):
        return {}
    return {tier: {"calls": cost.get("calls"), "seconds": cost.get("seconds")} for tier, cost in costs.items()}


def section(numbers: Numbers) -> Section:
    """The table of results, and what each tier had to compute for them."""
    rows = numbers["rows"]
    columns = ["result", "split", "MRR", "95 % interval", "the paper's", *_HITS, "queries", "time"]
    table = Table(
        columns, [_cells(row) for row in rows], numbers=columns[2:], caption="Filtered ranks; ties share the mean rank."
    )
    best = rows[0]
    low, high = best["mrr_interval"]
    text = (
        f"Longer bars are better. The best result on {best['split']} is {best['name']}: MRR {mrr_text(best['mrr'])} "
        f"over {best['queries']:,} queries (95 % interval {mrr_text(low)}–{mrr_text(high)})."
    )
    costed = [row for row in rows if row["costs"]]
    return Section(TITLE, [text], tables=[table, _cost_table(costed)] if costed else [table])


def _cells(row: Numbers) -> list[Cell | str]:
    return [
        row["name"],
        row["split"],
        Cell(mrr_text(row["mrr"]), row["mrr"]),
        "–".join(mrr_text(end) for end in row["mrr_interval"]),
        mrr_text(row["published_mrr"]),
        *(mrr_text(row[hits]) for hits in _HITS),
        f"{row['queries']:,}",
        seconds_text(row["seconds"]),
    ]


def _cost_table(rows: Sequence[Numbers]) -> Table:
    columns = ["result", "split", "tier", "scores computed", "time"]
    cells = [
        [row["name"], row["split"], tier, f"{cost['calls'] or 0:,}", seconds_text(cost["seconds"])]
        for row in rows
        for tier, cost in row["costs"].items()
    ]
    return Table(columns, cells, numbers=columns[3:], caption="What each tier computed, and how long it took.")
