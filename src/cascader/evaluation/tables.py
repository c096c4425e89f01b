"""Tables of saved results, with the paper's figures next to ours."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cascader.errors import DataError
from cascader.evaluation.evaluation import Evaluation

_COLUMNS = ("result", "MRR", "the paper's", "hits@1", "hits@3", "hits@10", "training")


def results_table(folder: Path) -> str:
    """All results in `folder/<dataset>/` as Markdown, one table per dataset, best first."""
    datasets = sorted({path.parent for path in folder.glob("*/*.json")})
    if not datasets:
        raise DataError(f"{folder} has no results. Create some with: cascader evaluate RUN --out {folder}/DATASET")
    return "\n\n".join(_table(dataset) for dataset in datasets) + "\n"


def _table(folder: Path) -> str:
    evaluations = sorted((Evaluation.load(path) for path in folder.glob("*.json")), key=lambda found: -found.mrr)
    rows = [_row(evaluation) for evaluation in evaluations]
    lines = [f"| {' | '.join(cells)} |" for cells in (_COLUMNS, ["---"] * len(_COLUMNS), *rows)]
    splits = sorted({evaluation.split for evaluation in evaluations})
    return "\n".join([f"### {folder.name} ({', '.join(splits)})", "", *lines])


def _row(evaluation: Evaluation) -> list[str]:
    published = published_mrr(evaluation.dataset, evaluation.name)
    seconds = _training_seconds(evaluation.about)
    return [
        evaluation.name,
        f"{evaluation.mrr:.4f}",
        "" if published is None else f"{published:.4f}",
        *(f"{evaluation.metrics[metric]:.4f}" for metric in ("hits@1", "hits@3", "hits@10")),
        "" if seconds is None else f"{seconds:,.0f} s",
    ]


def _training_seconds(about: object) -> float | None:
    """The total training time of all parts of a result, including preparation."""
    if not isinstance(about, dict):
        return None
    training = about["training"] if isinstance(about.get("training"), dict) else {}
    own = [training.get("seconds"), training.get("preparing_seconds")]
    parts = [*own, *(_training_seconds(part) for part in about.values())]
    known = [seconds for seconds in parts if seconds is not None]
    return sum(known) if known else None


def published_mrr(dataset: str, name: str) -> float | None:
    """The paper's MRR for a result of this name, or of its kind: "dual" for "dual-contrastive"."""
    rows = _published().get(dataset, {})
    row = rows.get(name) or rows.get(name.partition("-")[0])
    return None if row is None else float(row[0])


@cache
def _published() -> dict[str, Any]:
    return tomllib.loads(files("cascader.evaluation").joinpath("published.toml").read_text(encoding="utf-8"))
