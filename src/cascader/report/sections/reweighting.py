"""What the weights between tiers are good for."""

from collections.abc import Mapping
from typing import Any

from cascader.report.plots import Chart, Series
from cascader.report.sections.section import Cell, Figure, Section, Table, joined, mrr_text

_WAYS = {"tuned": "tuned weights", "equal": "equal weights"}


def reweighting(numbers: Mapping[str, Any]) -> Section:
    """Valid MRR with the tuned weights and with others."""
    rows = numbers["rows"]
    later = numbers["later"]
    columns = ["candidates", "alpha (head, tail)", "tuned", "equal weights", f"{later} alone"]
    cells = [
        [
            row["pruner"],
            f"{row['alpha']['head']:.2f}, {row['alpha']['tail']:.2f}",
            Cell(mrr_text(row["tuned"]), row["tuned"]),
            Cell(mrr_text(row["equal"]), row["equal"]),
            Cell(mrr_text(row["later_alone"]), row["later_alone"]),
        ]
        for row in rows
    ]
    best = rows[numbers["best"]]
    text = [
        f"{later} reorders the candidates of {joined(numbers['earlier'])}; alpha is the weight of what came before it. "
        f"MRR on {numbers['queries']:,} queries of valid, a sample of those that alpha was chosen on: "
        f"{mrr_text(best['tuned'])} with the tuned weights ({best['pruner']}), "
        f"{best['equal'] - best['tuned']:+.4f} if both count alike, "
        f"{best['later_alone'] - best['tuned']:+.4f} if {later} decides alone."
    ]
    return Section("", "", text, tables=[Table(columns, cells, numbers=columns[1:])])


def margins(numbers: Mapping[str, Any]) -> Section:
    """Mean margins by groups of gold ranks, with and without weights."""
    ways = numbers["ways"]
    labels = _labels(ways)
    series = [
        Series(
            label,
            [labels.index(group["ranks"]) for group in ways[way]["groups"]],
            [group["mean"] for group in ways[way]["groups"]],
            colour,
            spread=[(group["quartiles"][0], group["quartiles"][1]) for group in ways[way]["groups"]],
        )
        for colour, (way, label) in enumerate(_WAYS.items())
    ]
    tuned, equal = (_coefficient(ways[way]["with_reciprocal_rank"]) for way in _WAYS)
    caption = (
        f"{joined(numbers['tiers'])} ({numbers['pruner']}): how far the gold answer's score stands above the mean of "
        "the wrong candidates, in deviations, by the gold's rank; half of the golds lie in the shade. The steeper a "
        "line falls, the more a margin says about being right. Its correlation with the reciprocal rank is "
        f"{tuned} with the tuned weights and {equal} with equal ones."
    )
    chart = Chart("margins", caption, "rank of the gold answer", "mean margin", series, x_ticks=labels)
    columns = ["weights", "with the rank", "with the reciprocal rank", "gold answers"]
    cells = [
        [
            label,
            _coefficient(ways[way]["with_rank"]),
            _coefficient(ways[way]["with_reciprocal_rank"]),
            f"{ways[way]['golds']:,}",
        ]
        for way, label in _WAYS.items()
    ]
    table = Table(columns, cells, numbers=columns[1:], caption="Pearson's correlation of the margin.")
    return Section("", "", [], [Figure(chart, caption)], [table])


def _labels(ways: Mapping[str, Any]) -> list[str]:
    """The groups of ranks that occur, from the best down."""
    found = {group["ranks"] for way in ways.values() for group in way["groups"]}
    return sorted(found, key=lambda label: int(label.rstrip("+").split("–")[0]))


def _coefficient(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
