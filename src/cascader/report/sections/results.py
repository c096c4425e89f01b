"""The main table, the tiers, and the slices."""

from collections.abc import Mapping
from typing import Any

from cascader.report.sections.section import Cell, Section, Table, joined, mrr_text, seconds_text

_WAYS = {
    "side": ("side asked for", "By the side that is asked for."),
    "relation_kind": ("kind of relation", "By how many heads and tails a relation joins; n is more than 1.5 in train."),
    "gold_degree": ("degree", "By the number of train triples that the gold answer stands in."),
    "seen_in_train": ("seen in train", "By whether train shows the entity that is given (anchor) and the gold answer."),
    "relation": ("relation", "By relation, those with the most queries first, twenty at the most."),
}
_HITS = ("hits@1", "hits@3", "hits@10")


def main_table(numbers: Mapping[str, Any]) -> Section:
    """All evaluations, the paper's figures beside them."""
    rows = numbers["rows"]
    columns = ["result", "split", "MRR", "95 % interval", "the paper's", *_HITS, "queries", "time"]
    table = Table(columns, [_result(row) for row in rows], numbers=columns[2:], caption="Filtered, ties at mean rank.")
    best = rows[0]
    low, high = best["mrr_interval"]
    text = [
        f"Longer bars are better. The best on {best['split']} is {best['name']}: MRR {mrr_text(best['mrr'])}, "
        f"between {mrr_text(low)} and {mrr_text(high)} if other triples had been drawn, from {best['queries']:,} "
        "queries."
    ]
    costed = [row for row in rows if row["costs"]]
    return Section("", "", text, tables=[table, _costs(costed)] if costed else [table])


def _result(row: Mapping[str, Any]) -> list[Cell | str]:
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


def _costs(rows: list[Mapping[str, Any]]) -> Table:
    columns = ["result", "split", "tier", "scores given", "time"]
    cells = [
        [row["name"], row["split"], tier, f"{cost['calls'] or 0:,}", seconds_text(cost["seconds"])]
        for row in rows
        for tier, cost in row["costs"].items()
    ]
    return Table(columns, cells, numbers=columns[3:], caption="What each tier had to score, and how long it took.")


def tiers(numbers: Mapping[str, Any]) -> Section:
    """What each tier consists of."""
    rows = numbers["rows"]
    columns = ["tier", "model", "parameters", "on disk", "training", "valid MRR"]
    cells = [
        [
            row["tier"],
            row["model"] or "",
            _count(row["parameters"]),
            "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.1f} MB",
            seconds_text(row["training_seconds"]),
            mrr_text(row["valid_mrr"]),
        ]
        for row in rows
    ]
    counted = [row["parameters"] for row in rows if row["parameters"] is not None]
    text = [
        f"{joined([row['tier'] for row in rows])}: {sum(counted):,} parameters in all. A language model that training "
        "left as it was is counted among the parameters, but not kept on disk. The valid MRR of a later tier is that "
        "of its sum with the earlier ones."
    ]
    return Section("", "", text, tables=[Table(columns, cells, numbers=columns[2:])])


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def slices(numbers: Mapping[str, Any]) -> Section:
    """The main evaluation by kinds of queries."""
    ways = numbers["ways"]
    tables = [_slice_table(way, ways[way]) for way in _WAYS if ways.get(way)]
    text = [
        f"{numbers['evaluation']} on {numbers['split']}, MRR {mrr_text(numbers['mrr'])} over all queries. "
        "Kinds with a lower MRR than that are harder than the rest."
    ]
    return Section("", "", text, tables=tables)


def _slice_table(way: str, rows: list[Mapping[str, Any]]) -> Table:
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
