"""What accuracy costs: every cascade that was tried on valid, and the best within a budget of pairs."""

from collections.abc import Iterable, Sequence
from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.section import (
    Cell,
    Chart,
    Figure,
    Numbers,
    Part,
    Section,
    Series,
    Table,
    colors_by_kind,
    joined,
    kind_label,
    mrr_text,
    seconds_text,
    skipped,
)
from cascader.tuning import COSTS, Budget, pareto_front


def pareto_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """MRR on valid against pairs and seconds per query for every trial, and the best trials at each cost."""
    if len(inputs.trials) < 2:
        return skipped(inputs.why_no_choice)
    envelope = {cost: [inputs.describe_trial(trial) for trial in pareto_front(inputs.trials, cost)] for cost in COSTS}
    return {"points": [inputs.describe_trial(trial) for trial in inputs.trials], "envelope": envelope}


def pareto_section(numbers: Numbers) -> Section:
    """MRR against pairs for each set of tiers that reads pairs, and against time for all of them."""
    points = numbers["points"]
    first, best = points[0], max(points, key=_merit)
    text = (
        f"{len(points)} cascades were tried on valid. The best, {joined(best['tiers'])} ({best['pruner']}), reaches "
        f"MRR {mrr_text(best['valid_mrr'])} with {best['pairs_per_query']:.1f} pairs read and "
        f"{seconds_text(best['seconds_per_query'])} per query; {first['tiers'][0]} alone reaches "
        f"{mrr_text(first['valid_mrr'])} in {seconds_text(first['seconds_per_query'])}."
    )
    reading = _distinct(point["tiers"] for point in points if point["kind"] != "everyone")
    figures = [_by_kind(points, tiers, number) for number, tiers in enumerate(reading)]
    return Section(PARETO.title, [text], [*figures, _by_tiers(points, numbers["envelope"]["seconds_per_query"])])


def _merit(point: Numbers) -> tuple[float, float]:
    """Accuracy first, then speed."""
    return point["valid_mrr"], -point["seconds_per_query"]


def _distinct(found: Iterable[list[str]]) -> list[list[str]]:
    return [list(tiers) for tiers in dict.fromkeys(tuple(tiers) for tiers in found)]


def _by_kind(points: Sequence[Numbers], tiers: list[str], number: int) -> Figure:
    """MRR against pairs per query: a line for each kind of pruner, and a dashed one for reading nothing."""
    ours = [point for point in points if point["tiers"] == tiers]
    base = next(point for point in points if point["tiers"] == tiers[:-1])
    series = [
        _line(kind_label(kind), [point for point in ours if point["kind"] == kind], "pairs_per_query", color)
        for kind, color in colors_by_kind(point["kind"] for point in ours).items()
    ]
    pairs = [point["pairs_per_query"] for point in ours]
    series.append(Series(f"without {tiers[-1]}", [min(pairs), max(pairs)], [base["valid_mrr"]] * 2, None, "dashed"))
    best = max(ours, key=_merit)
    caption = (
        f"{joined(tiers)}: MRR on valid against the pairs that {tiers[-1]} reads per query, by kind of pruner. Up and "
        f"to the left is better. Best here: {best['pruner']}, {mrr_text(best['valid_mrr'])} for "
        f"{best['pairs_per_query']:.1f} pairs, {best['valid_mrr'] - base['valid_mrr']:+.4f} over {joined(tiers[:-1])}."
    )
    name = f"pareto-pairs-{number}"
    return Figure(Chart(name, caption, "pairs read per query", "MRR on valid", series, "log"), caption)


def _by_tiers(points: Sequence[Numbers], envelope: Sequence[Numbers]) -> Figure:
    """MRR against milliseconds per query: a line for each set of tiers, and the best at any time."""
    points, envelope = _in_milliseconds(points), _in_milliseconds(envelope)
    series = [
        _line(joined(tiers), [point for point in points if point["tiers"] == tiers], "milliseconds", number)
        for number, tiers in enumerate(_distinct(point["tiers"] for point in points))
    ]
    times, figures = ([point[name] for point in envelope] for name in ("milliseconds", "valid_mrr"))
    if len(envelope) > 1:
        series.append(Series("best for the time", times, figures, None, "dashed"))
    last = envelope[-1]
    caption = (
        "MRR on valid against the predicted time per query, by tiers. Up and to the left is better. The dashed line "
        f"joins the cascades that nothing faster beats, and ends with {joined(last['tiers'])} at "
        f"{mrr_text(last['valid_mrr'])} in {seconds_text(last['seconds_per_query'])}."
    )
    return Figure(Chart("pareto-seconds", caption, "milliseconds per query", "MRR on valid", series, "log"), caption)


def _in_milliseconds(points: Sequence[Numbers]) -> list[Numbers]:
    return [{**point, "milliseconds": 1000 * point["seconds_per_query"]} for point in points]


def _line(label: str, points: Sequence[Numbers], cost: str, color: int) -> Series:
    ordered = sorted(points, key=lambda point: point[cost])
    return Series(label, [point[cost] for point in ordered], [point["valid_mrr"] for point in ordered], color)


PARETO = Part("pareto", "What accuracy costs", pareto_numbers, pareto_section)


_PAIRS = (0, 1, 2, 5, 10, 20, 50, 100)


def budgets_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """For each number of pairs that may be read per query, the best trial within it."""
    if inputs.tuned is None:
        return skipped(inputs.why_no_choice)
    if not inputs.read_top:
        return skipped("No tier of this run reads pairs, so a budget of pairs makes no difference.")
    plans = {pairs: inputs.tuned.plan(Budget(pairs=pairs), query_count=1) for pairs in _PAIRS}
    return {"rows": [{"budget": pairs, **inputs.describe_trial(plan.trial)} for pairs, plan in plans.items()]}


def budgets_section(numbers: Numbers) -> Section:
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
    return Section(BUDGETS.title, [text], tables=[Table(columns, cells, numbers=[columns[0], *columns[3:]])])


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


BUDGETS = Part("budgets", "The best within a budget", budgets_numbers, budgets_section)
