"""The size of each tier, and what its training took."""

from collections.abc import Mapping
from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.jsonable import skipped
from cascader.report.section import Numbers, Section, Table, joined, mrr_text, seconds_text

TITLE = "The tiers"


def numbers(inputs: ReportInputs) -> dict[str, Any]:
    """Parameters, bytes on disk and training seconds of each tier."""
    if not inputs.models:
        return skipped("The models do not describe themselves.")
    return {"rows": [_row(name, model) for name, model in inputs.models.items()]}


def _row(name: str, model: Mapping[str, Any]) -> dict[str, Any]:
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


def section(numbers: Numbers) -> Section:
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
    return Section(TITLE, [text], tables=[Table(columns, cells, numbers=columns[2:])])
