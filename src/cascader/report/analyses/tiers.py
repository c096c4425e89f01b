"""What each tier consists of, and what its training took."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascader.report.analyses.jsonable import left_out
from cascader.report.inputs import Material

if TYPE_CHECKING:
    from cascader.runs import Run


def about_tiers(run: "Run") -> dict[str, dict[str, Any]]:
    """What each tier of a run has to tell of itself, with its size in numbers and on disk."""
    from cascader.runs import tier_folder

    return {
        name: {
            **model.about(),
            "parameters": model.parameter_count,
            "bytes": _bytes(tier_folder(run.folder, name)),
        }
        for name, model in run.tiers.items()
    }


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tiers(material: Material) -> dict[str, Any]:
    """Parameters, bytes and training seconds of each tier."""
    if not material.models:
        return left_out("Nothing is known of the models.")
    return {"rows": [_row(name, model) for name, model in material.models.items()]}


def _row(name: str, model: Any) -> dict[str, Any]:  # noqa: ANN401 - what a model tells of itself
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
