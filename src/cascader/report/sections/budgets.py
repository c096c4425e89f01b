"""The best cascade within a budget of pairs."""

from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.section import Cell, Numbers, Section, Table, joined, mrr_text, seconds_text
from cascader.tuning import Budget

TITLE = "The best within a budget"
_PAIRS = (0, 1, 2, 5, 10, 20, 50, 100)


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """For each number of pairs that may be read per query, the best trial within it."""
    if inputs.tuned is None:
        return skipped(inputs.why_no_choice)
    if not inputs.read_top:
        return skipped("No tier of this run reads pairs, so a budget of pairs makes no difference.")
    plans = {pairs: inputs.tuned.plan(Budget(pairs=pairs), query_count=1) for pairs in _PAIRS}
    return {"rows": [{"budget": pairs, **inputs.describe_trial(plan.trial)} for pairs, plan in plans.items()]}


def section(numbers: Numbers) -> Section:
    """What each budget buys."""
    rows = numbers["rows"]
    columns = ["pairs allowed", "tiers", "candidates", "pairs read", "time", "valid MRR"]
    cells = [
        [
            f"{row['budget']}",
            joined(row["tiers"]),
            row["pruner"],
            f"{row['pairs_per_query']:.1f}",
            seconds_text(row["seconds_per_query"]),
            Cell(mrr_text(row["valid_mrr"]), row["valid_mrr"]),
        ]
        for row in rows
    ]
    text = f"Pairs and times are per query. {_gain(rows)}"
    return Section(TITLE, [text], tables=[Table(columns, cells, numbers=[columns[0], *columns[3:]])])


def _gain(rows: list[Numbers]) -> str:
    least, most = rows[0], rows[-1]
    gain = most["valid_mrr"] - least["valid_mrr"]
    if gain <= 0:
        return "Reading pairs does not raise the MRR on valid."
    enough = next(row for row in rows if row["valid_mrr"] - least["valid_mrr"] >= gain / 2)
    return (
        f"From {least['budget']} to {most['budget']} pairs, the MRR on valid rises by {gain:.4f}; a budget of "
        f"{enough['budget']} gives half of that gain or more."
    )
