"""What was measured: every evaluation with the paper's figures beside ours, the tiers, and the kinds of query."""

from collections.abc import Mapping, Sequence
from typing import Any

from cascader.evaluation import METRICS, Evaluation, Metrics
from cascader.evaluation.comparison import published_mrr
from cascader.graph import KnowledgeGraph
from cascader.report.inputs import ReportInputs
from cascader.report.section import Cell, Numbers, Part, Section, Table, joined, mrr_text, seconds_text, skipped

_PUBLISHED = "the paper's"  # a column for graphs that the paper has
_HITS = ("hits@1", "hits@3", "hits@10")


def main_table_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The metrics of every evaluation, test first, then by MRR."""
    if not inputs.evaluations:
        return skipped("The run has not been evaluated yet. Evaluate it with: cascader evaluate RUN")
    ordered = sorted(inputs.evaluations, key=lambda found: (found.split != "test", -found.mrr, found.name))
    return {"rows": [_evaluation_row(evaluation) for evaluation in ordered]}


def _evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
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
    counted = {tier: cost for tier, cost in costs.items() if isinstance(cost, dict)}
    return {tier: {"calls": cost.get("calls"), "seconds": cost.get("seconds")} for tier, cost in counted.items()}


def main_table_section(numbers: Numbers) -> Section:
    """The table of results, and what each tier had to compute for them."""
    rows = numbers["rows"]
    cells = [_evaluation_cells(row) for row in rows]
    if all(row["published_mrr"] is None for row in rows):
        cells = [{column: cell for column, cell in row.items() if column != _PUBLISHED} for row in cells]
    columns = list(cells[0])
    table = Table(
        columns,
        [list(row.values()) for row in cells],
        numbers=columns[2:],
        caption="Filtered ranks; ties share the mean rank.",
    )
    best = rows[0]
    low, high = best["mrr_interval"]
    text = (
        f"Longer bars are better. The best result on {best['split']} is {best['name']}: MRR {mrr_text(best['mrr'])} "
        f"over {best['queries']:,} queries (95 % interval {mrr_text(low)}–{mrr_text(high)})."
    )
    costed = [row for row in rows if row["costs"]]
    return Section(MAIN_TABLE.title, [text], tables=[table, _cost_table(costed)] if costed else [table])


def _evaluation_cells(row: Numbers) -> dict[str, Cell | str]:
    return {
        "result": row["name"],
        "split": row["split"],
        "MRR": Cell(mrr_text(row["mrr"]), row["mrr"]),
        "95 % interval": "–".join(mrr_text(end) for end in row["mrr_interval"]),
        _PUBLISHED: mrr_text(row["published_mrr"]),
        **{hits: mrr_text(row[hits]) for hits in _HITS},
        "queries": f"{row['queries']:,}",
        "time": seconds_text(row["seconds"]),
    }


def _cost_table(rows: Sequence[Numbers]) -> Table:
    columns = ["result", "split", "tier", "scores computed", "time"]
    cells = [
        [row["name"], row["split"], tier, f"{cost['calls'] or 0:,}", seconds_text(cost["seconds"])]
        for row in rows
        for tier, cost in row["costs"].items()
    ]
    return Table(columns, cells, numbers=columns[3:], caption="What each tier computed, and how long it took.")


MAIN_TABLE = Part("main_table", "Results", main_table_numbers, main_table_section)


def tiers_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """Parameters, bytes on disk and training seconds of each tier."""
    if not inputs.models:
        return skipped("The models do not describe themselves.")
    return {"rows": [_tier_row(name, model) for name, model in inputs.models.items()]}


def _tier_row(name: str, model: Mapping[str, Any]) -> dict[str, Any]:
    training = model.get("training") or {}
    seconds = [training.get("seconds"), training.get("preparing_seconds")]
    known = [value for value in seconds if value is not None]
    return {
        "tier": name,
        "model": model.get("model"),
        "parameters": model.get("parameters"),
        "bytes": model.get("bytes"),
        "training_seconds": sum(known) if known else None,
        "valid_mrr": training.get("valid_mrr"),
    }


def tiers_section(numbers: Numbers) -> Section:
    """A table of the tiers."""
    rows = numbers["rows"]
    columns = ["tier", "model", "parameters", "on disk", "training", "valid MRR"]
    cells = [
        [
            row["tier"],
            row["model"] or "",
            "" if row["parameters"] is None else f"{row['parameters']:,}",
            "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.1f} MB",
            seconds_text(row["training_seconds"]),
            mrr_text(row["valid_mrr"]),
        ]
        for row in rows
    ]
    total = sum(row["parameters"] for row in rows if row["parameters"] is not None)
    text = (
        f"{joined([row['tier'] for row in rows])}: {total:,} parameters in total. A language model that training left "
        "frozen counts toward the parameters but is not stored on disk. The valid MRR of a later tier is that of its "
        "sum with the earlier ones."
    )
    return Section(TIERS.title, [text], tables=[Table(columns, cells, numbers=columns[2:])])


TIERS = Part("tiers", "The tiers", tiers_numbers, tiers_section)


_MAX_LABELS = 20
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


def slices_numbers(inputs: ReportInputs) -> dict[str, Any]:
    """The main evaluation by side, relation, relation kind, degree of the gold answer, and what train contains."""
    if not inputs.evaluations:
        return skipped("The run has not been evaluated yet. Evaluate it with: cascader evaluate RUN")
    main = max(inputs.evaluations, key=_importance)
    ways = {way: _slice_rows(way, labels, inputs.kg) for way, labels in main.slices.items()}
    return {"evaluation": main.name, "split": main.split, "mrr": main.mrr, "ways": ways}


def _importance(evaluation: Evaluation) -> tuple[bool, bool, int, float]:
    """Test before valid, cascades before sums, sums before single tiers, then the higher MRR."""
    name = evaluation.name
    return evaluation.split == "test", name.startswith("cascade"), name.count("+"), evaluation.mrr


def _slice_rows(way: str, labels: Mapping[str, Metrics], kg: KnowledgeGraph) -> list[dict[str, Any]]:
    names = {relation.id: relation.name for relation in kg.relations} if way == "relation" else {}
    rows: list[dict[str, Any]] = [
        {"label": names.get(label, label), "queries": metrics.queries, **{name: metrics[name] for name in METRICS}}
        for label, metrics in labels.items()
    ]
    if way == "gold_degree":  # "3-9", "10-29", "300+"
        return sorted(rows, key=lambda row: int(row["label"].rstrip("+").split("-")[0]))
    return sorted(rows, key=lambda row: (-row["queries"], row["label"]))[:_MAX_LABELS]


def slices_section(numbers: Numbers) -> Section:
    """A table for each way to slice the queries."""
    ways = numbers["ways"]
    text = (
        f"{numbers['evaluation']} on {numbers['split']}, MRR {mrr_text(numbers['mrr'])} over all queries. Kinds of "
        "queries with a lower MRR are harder than average."
    )
    return Section(SLICES.title, [text], tables=[_slice_table(way, ways[way]) for way in _WAYS if ways.get(way)])


def _slice_table(way: str, rows: Sequence[Numbers]) -> Table:
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


SLICES = Part("slices", "By kind of query", slices_numbers, slices_section)
