"""Accuracy against cost, the best within a budget, and what pruners keep."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cascader.report.plots import Chart, Scale, Series
from cascader.report.sections.section import Cell, Figure, Section, Table, joined, mrr_text, seconds_text

_KINDS = {
    "top_k": "same for all",
    "static": "static",
    "dynamic": "dynamic",
    "conformal": "conformal",
    "budgeted": "budgeted",
}
_COLOURS = {kind: number for number, kind in enumerate(_KINDS)}
Point = Mapping[str, Any]


def pareto(numbers: Mapping[str, Any]) -> Section:
    """Accuracy against pairs for each choice of tiers that reads them, and against seconds for all."""
    points = numbers["points"]
    first, best = points[0], max(points, key=_merit)
    text = [
        f"{len(points)} cascades were tried on valid. The best, "
        f"{joined(best['tiers'])} ({best['pruner']}), has MRR {mrr_text(best['valid_mrr'])}, with "
        f"{best['pairs_per_query']:.1f} pairs read and {seconds_text(best['seconds_per_query'])} a query; "
        f"{first['tiers'][0]} alone has {mrr_text(first['valid_mrr'])} in {seconds_text(first['seconds_per_query'])}."
    ]
    reading = _distinct(point["tiers"] for point in points if point["kind"] != "everyone")
    figures = [_by_kind(points, tiers, number) for number, tiers in enumerate(reading)]
    return Section("", "", text, [*figures, _by_tiers(points, numbers["envelope"]["seconds_per_query"])])


def _merit(point: Point) -> tuple[float, float]:
    """The most accurate first; of equals, the cheapest."""
    return point["valid_mrr"], -point["seconds_per_query"]


def _distinct(found: Iterable[list[str]]) -> list[list[str]]:
    return [list(tiers) for tiers in dict.fromkeys(tuple(tiers) for tiers in found)]


def _by_kind(points: Sequence[Point], tiers: list[str], number: int) -> Figure:
    """MRR against pairs a query, a line for each kind of pruner; a dashed one where nothing is read."""
    ours = [point for point in points if point["tiers"] == tiers]
    base = next(point for point in points if point["tiers"] == tiers[:-1])
    series = [
        _line(_KINDS[kind], [point for point in ours if point["kind"] == kind], "pairs_per_query", _COLOURS[kind])
        for kind in _KINDS
        if any(point["kind"] == kind for point in ours)
    ]
    pairs = [point["pairs_per_query"] for point in ours]
    ends = [min(pairs), max(pairs)]
    series.append(Series(f"without {tiers[-1]}", ends, [base["valid_mrr"]] * 2, None, "dashed"))
    best = max(ours, key=_merit)
    caption = (
        f"{joined(tiers)}: MRR on valid against the pairs that {tiers[-1]} reads a query, by kind of pruner. Up and to "
        f"the left is better. Best here: {best['pruner']}, {mrr_text(best['valid_mrr'])} for "
        f"{best['pairs_per_query']:.1f} pairs, {best['valid_mrr'] - base['valid_mrr']:+.4f} over {joined(tiers[:-1])}."
    )
    chart = _chart(f"pareto-pairs-{number}", caption, "pairs read a query", series, "log")
    return Figure(chart, caption)


def _by_tiers(points: Sequence[Point], envelope: Sequence[Point]) -> Figure:
    """MRR against milliseconds a query, a line for each choice of tiers, and the best for any time."""
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
        "MRR on valid against the time a query is predicted to take, by tiers. Up and to the left is better; the "
        f"dashed line joins what nothing cheaper beats, and ends here with {joined(last['tiers'])} at "
        f"{mrr_text(last['valid_mrr'])} for {seconds_text(last['seconds_per_query'])}."
    )
    return Figure(_chart("pareto-seconds", caption, "milliseconds a query", series, "log"), caption)


def _in_milliseconds(points: Sequence[Point]) -> list[Point]:
    return [{**point, "milliseconds": 1000 * point["seconds_per_query"]} for point in points]


def _line(label: str, points: Sequence[Point], cost: str, colour: int) -> Series:
    ordered = sorted(points, key=lambda point: point[cost])
    return Series(label, [point[cost] for point in ordered], [point["valid_mrr"] for point in ordered], colour)


def _chart(name: str, title: str, x_label: str, series: Sequence[Series], x_scale: Scale) -> Chart:
    return Chart(name, title, x_label, "MRR on valid", series, x_scale)


def budgets(numbers: Mapping[str, Any]) -> Section:
    """What a budget of pairs buys."""
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
    least, most = rows[0], rows[-1]
    gain = most["valid_mrr"] - least["valid_mrr"]
    enough = next(row for row in rows if row["valid_mrr"] - least["valid_mrr"] >= gain / 2)
    text = [
        f"All pairs and times are a query's. From {least['budget']} to {most['budget']} pairs the MRR on valid rises "
        f"by {gain:.4f}; half of that is had with {enough['budget']}."
        if gain > 0
        else "All pairs and times are a query's. More pairs than none do not raise the MRR on valid."
    ]
    table = Table(columns, cells, numbers=[columns[0], *columns[3:]])
    return Section("", "", text, tables=[table])


def coverage(numbers: Mapping[str, Any]) -> Section:
    """The share of golds that was asked for against the one that was kept."""
    rows = numbers["rows"]
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    by_kind = {kind: _by_target(row for row in rows if row["kind"] == kind) for kind in kinds}
    series = [
        Series(_KINDS[kind], [row["target"] for row in ours], [row["coverage"] for row in ours], _COLOURS[kind])
        for kind, ours in by_kind.items()
    ]
    chance = list({row["target"]: (row["by_chance"][0], row["by_chance"][1]) for row in _by_target(rows)}.items())
    targets, spread = [target for target, _ in chance], [ends for _, ends in chance]
    series.append(Series("as asked", targets, targets, None, "dashed", spread))
    caption = (
        "The share of gold answers that a pruner was asked to keep, and the share that it keeps on valid queries that "
        "it has not learnt from, before any limit on what may be read. In the shade lie 95 of 100 conformal pruners, "
        f"by the chance of so few queries. {_verdict(by_kind.get('conformal', []))}"
    )
    chart = Chart("coverage", caption, "share asked for", "share kept", series)
    columns = ["pruner", "asked for", "kept", "candidates a query"]
    cells = [
        [
            _KINDS[row["kind"]],
            f"{row['target']:.2f}",
            f"{row['coverage']:.3f}",
            f"{row['candidates_a_query']:,.1f}",
        ]
        for ours in by_kind.values()
        for row in ours
    ]
    text = [
        f"Candidates of {joined(numbers['earlier'])}: {numbers['queries']:,} queries, and {numbers['calibrated']:,} "
        "others that conformal pruners were calibrated on."
    ]
    return Section("", "", text, [Figure(chart, caption)], [Table(columns, cells, numbers=columns[1:])])


def _by_target(rows: Iterable[Point]) -> list[Point]:
    return sorted(rows, key=lambda row: row["target"])


def _verdict(rows: Sequence[Point]) -> str:
    """Whether conformal pruners keep what they promise."""
    short = [row for row in rows if row["coverage"] < row["by_chance"][0]]
    if not short:
        return f"Here {len(rows)} of {len(rows)} conformal pruners keep as much as they promise, but for chance."
    return f"Here {len(short)} of {len(rows)} conformal pruners keep less than they promise, and chance is no excuse."
