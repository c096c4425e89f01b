"""How much the tiers differ: in whom they rank first, and in how they score."""

from collections.abc import Mapping
from typing import Any

from cascader.report.plots import Chart, Series
from cascader.report.sections.section import Figure, Section, Table, joined


def correlations(numbers: Mapping[str, Any]) -> Section:
    """The correlation of gold ranks between each two tiers."""
    pairs = numbers["pairs"]
    columns = ["tiers", "ranks", "log ranks", "queries", "measured on"]
    cells = [
        [
            joined(pair["tiers"]),
            _coefficient(pair["ranks"]),
            _coefficient(pair["log_ranks"]),
            f"{pair['queries']:,}",
            pair["where"],
        ]
        for pair in pairs
    ]
    text = ["Two tiers whose gold ranks go together fail on the same questions, and gain little from each other."]
    known = [pair for pair in pairs if pair["log_ranks"] is not None]
    if known:
        least = min(known, key=lambda pair: pair["log_ranks"])
        text.append(
            f"The most different two here are {least['tiers'][0]} and {least['tiers'][1]}: {least['log_ranks']:.2f} by "
            "the logarithms of the ranks, which a few very bad ranks do not decide."
        )
    table = Table(columns, cells, numbers=columns[1:4], caption="Pearson's correlation of the gold answers' ranks.")
    return Section("", "", [" ".join(text)], tables=[table])


def _coefficient(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def distributions(numbers: Mapping[str, Any]) -> Section:
    """Sorted scores of a few questions, and how skewed they are in the mean."""
    figures = [_figure(question, number) for number, question in enumerate(numbers["questions"])]
    read = [f"the {top} best of the first tier for {name}" for name, top in numbers["read_top"].items()]
    text = [
        f"Each tier's scores of one question of valid, from the best to the worst, scaled to 1 and 0"
        f"{'; ' + ', '.join(read) if read else ''}. A circle marks the gold answer. Other known answers are left out."
    ]
    columns = ["tier", "mean skewness"]
    skewness = numbers["skewness"]
    cells = [[name, "undefined" if value is None else f"{value:+.2f}"] for name, value in skewness.items()]
    sample = f"Over {numbers['sample']:,} queries of valid"
    caption = f"{sample}: above 0 where a few stand out, below 0 where most are near the top."
    return Section("", "", text, figures, [Table(columns, cells, numbers=columns[1:], caption=caption)])


def _figure(question: Mapping[str, Any], number: int) -> Figure:
    series, places = [], []
    for colour, tier in enumerate(question["tiers"]):
        series.append(Series(tier["tier"], tier["places"], tier["scores"], colour, "plain"))
        if tier["gold_place"] is not None:
            series.append(Series("", [tier["gold_place"]], [tier["gold_score"]], colour, "marks"))
        where = "no place" if tier["gold_place"] is None else f"place {tier['gold_place']:,}"
        places.append(f"{where} of {tier['candidates']:,} by {tier['tier']}")
    asked = f"({question['head']}, {question['relation']}, {question['tail']})"
    caption = f"{asked}: the gold answer, {question['gold']}, is at {', '.join(places)}."
    return Figure(Chart(f"distribution-{number}", caption, "place", "score", series, "log"), caption)
