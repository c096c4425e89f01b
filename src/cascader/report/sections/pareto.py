"""What accuracy costs: every cascade that was tried on valid."""

from collections.abc import Iterable, Sequence
from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.plots import Chart, Series
from cascader.report.pruners import colors_by_kind, kind_label
from cascader.report.section import Figure, Numbers, Section, joined, mrr_text, seconds_text
from cascader.tuning import COSTS, pareto_front

TITLE = "What accuracy costs"


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """MRR on valid against pairs and seconds per query for every trial, and the best trials at each cost."""
    if len(inputs.trials) < 2:
        return skipped(inputs.why_no_choice)
    envelope = {cost: [inputs.describe_trial(trial) for trial in pareto_front(inputs.trials, cost)] for cost in COSTS}
    return {"points": [inputs.describe_trial(trial) for trial in inputs.trials], "envelope": envelope}


def section(numbers: Numbers) -> Section:
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
    return Section(TITLE, [text], [*figures, _by_tiers(points, numbers["envelope"]["seconds_per_query"])])


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
