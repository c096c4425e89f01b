"""Evaluations side by side: two of the same queries compared, and tables of saved results next to the paper's."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cascader.display import html_table
from cascader.durations import format_duration
from cascader.errors import DataError
from cascader.evaluation.evaluation import Evaluation
from cascader.evaluation.metrics import CONFIDENCE, METRICS, Interval, mean_intervals, paired_p_values


@dataclass(frozen=True)
class Difference:
    """How much higher one metric is in the second evaluation than in the first."""

    value: float
    interval: Interval
    p_value: float  # of a paired randomization test, two-sided


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two evaluations, and how they differ in each metric: the result of `compare`."""

    first: Evaluation
    second: Evaluation
    differences: Mapping[str, Difference]

    def __repr__(self) -> str:
        table = [self._columns, *self._rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        )

    def _repr_html_(self) -> str:
        return html_table(self._columns, self._rows, f"{self.first.dataset} {self.first.split}")

    @property
    def _columns(self) -> list[str]:
        return ["metric", self.first.name, self.second.name, "difference", f"{CONFIDENCE:.0%} interval", "p"]

    @property
    def _rows(self) -> list[list[str]]:
        """One row per metric: its two values, their difference with its interval, and the p-value."""
        return [
            [
                metric,
                f"{self.first.metrics[metric]:.4f}",
                f"{self.second.metrics[metric]:.4f}",
                f"{difference.value:+.4f}",
                "{:+.4f} to {:+.4f}".format(*difference.interval),
                f"{difference.p_value:.4f}",
            ]
            for metric, difference in self.differences.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            metric: {
                "first": self.first.metrics[metric],
                "second": self.second.metrics[metric],
                "difference": difference.value,
                "interval": list(difference.interval),
                "p_value": difference.p_value,
            }
            for metric, difference in self.differences.items()
        }


def compare(first: Evaluation, second: Evaluation, seed: int = 0) -> Comparison:
    """Compare two evaluations query by query; both must be of the same split of the same graph.

    >>> from cascader import Frequency, KnowledgeGraph, evaluate
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], test=[("b", "r", "c"), ("c", "r", "a")])
    >>> once, again = (evaluate(Frequency().fit(kg), kg, name=name) for name in ("once", "again"))
    >>> compare(once, again).differences["mrr"].value
    0.0
    """
    _check_same_queries(first, second)
    deltas = second.per_triple - first.per_triple  # (metrics, triples)
    found = zip(deltas.mean(axis=1).tolist(), mean_intervals(deltas, seed), paired_p_values(deltas, seed), strict=True)
    differences = {metric: Difference(*values) for metric, values in zip(METRICS, found, strict=True)}
    return Comparison(first, second, differences)


def _check_same_queries(first: Evaluation, second: Evaluation) -> None:
    for what, one, other in (
        ("split", first.split, second.split),
        ("filtering", first.filtering, second.filtering),
        ("data hash", first.data_hash, second.data_hash),
    ):
        if one != other:
            raise DataError(
                f"{first.name} and {second.name} cannot be compared: the first has {what} {one}, the second {other}. "
                "Evaluate both on the same split of the same graph."
            )
    if _queries(first) != _queries(second):
        raise DataError(
            f"{first.name} answered {first.metrics.queries:,} queries and {second.name} {second.metrics.queries:,}, "
            "and these are not the same. Evaluate both on the whole split."
        )


def _queries(evaluation: Evaluation) -> list[tuple[tuple[str, str, str], str]]:
    return sorted(zip(evaluation.triples, evaluation.sides, strict=True))


_PUBLISHED = "the paper's"  # a column for graphs that the paper has


def results_table(folder: Path) -> str:
    """All results in `folder/<dataset>/` as Markdown, one table per dataset, best first."""
    _check_folder(folder)
    datasets = sorted({path.parent for path in folder.glob("*/*.json")})
    if not datasets:
        raise DataError(f"{folder} has no results. Create some with: cascader evaluate RUN --out {folder}/DATASET")
    return "\n\n".join(_table(dataset) for dataset in datasets) + "\n"


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}. Name the one that holds a folder of results for each dataset.")


def _table(folder: Path) -> str:
    evaluations = sorted((Evaluation.load(path) for path in folder.glob("*.json")), key=lambda found: -found.mrr)
    rows = [_row(evaluation) for evaluation in evaluations]
    columns = [column for column in rows[0] if column != _PUBLISHED or any(row[column] for row in rows)]
    cells = [[row[column] for column in columns] for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]
    splits = sorted({evaluation.split for evaluation in evaluations})
    return "\n".join([f"### {folder.name} ({', '.join(splits)})", "", *lines])


#: The results that a summary names, and what each is called there.
_SUMMARIZED = {
    "cascade": "our cascade",
    "cascade-plain": "without the prior",
    "structure": "without a language model",
    "structure-plain": "without both",
}
_SUMMARY = (
    *("dataset", *_SUMMARIZED.values(), "gain of the language models", "the paper's cascade", "best published"),
    *("time to answer test, memory", "the paper's time, on a GPU"),
)


def summary_table(folder: Path) -> str:
    """The cascade of each dataset in `folder` as Markdown, between what it consists of and what was published."""
    _check_folder(folder)
    rows = [_summary(dataset) for dataset in sorted({path.parent for path in folder.glob("*/structure.json")})]
    if not rows:
        raise DataError(f"{folder} has no result called structure. Create one with: cascader reproduce DATASET")
    lines = [_SUMMARY, ["---"] * len(_SUMMARY), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _summary(folder: Path) -> list[str]:
    found = {name: Evaluation.load(path) for name in _SUMMARIZED if (path := folder / f"{name}.json").exists()}
    ours = {name: _with_interval(found[name]) if name in found else "" for name in _SUMMARIZED}
    seeds = [f"{Evaluation.load(path).mrr:.4f}" for path in sorted(folder.glob("cascade-seed-*.json"))]
    ours["cascade"] += f"; other seeds: {', '.join(seeds)}" if seeds else ""
    gain = _gain(compare(found["structure"], found["cascade"])) if "cascade" in found else ""
    published = _published().get(folder.name, {})
    mrr, best, inference = (published.get(name) for name in ("cascade", "best", "inference"))
    theirs = ["" if mrr is None else f"{mrr[0]:.4f}", "" if best is None else f"{best[0]:.4f} ({best[1]})"]
    cost = _cost(found.get("cascade", found["structure"]))
    return [folder.name, *ours.values(), gain, *theirs, cost, "" if inference is None else format_duration(*inference)]


def _cost(evaluation: Evaluation) -> str:
    memory = evaluation.peak_memory_bytes
    return ", ".join([format_duration(evaluation.seconds), *([f"{memory / 1e9:.1f} GB"] if memory else [])])


def _with_interval(evaluation: Evaluation) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(evaluation.mrr, *evaluation.intervals["mrr"])


def _gain(comparison: Comparison) -> str:
    difference = comparison.differences["mrr"]
    return f"{difference.value:+.4f} (p = {difference.p_value:.4f})"


def _row(evaluation: Evaluation) -> dict[str, str]:
    published = published_mrr(evaluation.dataset, evaluation.name)
    seconds = _training_seconds(evaluation.about)
    return {
        "result": evaluation.name,
        "MRR": f"{evaluation.mrr:.4f}",
        _PUBLISHED: "" if published is None else f"{published:.4f}",
        **{metric: f"{evaluation.metrics[metric]:.4f}" for metric in ("hits@1", "hits@3", "hits@10")},
        "training": "" if seconds is None else f"{seconds:,.0f} s",
    }


def _training_seconds(about: object) -> float | None:
    """The total training time of all parts of a result, including preparation."""
    if not isinstance(about, dict):
        return None
    training = about["training"] if isinstance(about.get("training"), dict) else {}
    own = [training.get("seconds"), training.get("preparing_seconds")]
    parts = [*own, *(_training_seconds(part) for part in about.values())]
    known = [seconds for seconds in parts if seconds is not None]
    return sum(known) if known else None


#: What the paper calls by another name.
_SAME_KIND = {"cascader": "cascade"}


def published_mrr(dataset: str, name: str) -> float | None:
    """The paper's MRR for a result of this name, or of its kind: "dual" for "dual-contrastive"."""
    rows, kind = _published().get(dataset, {}), name.partition("-")[0]
    row = rows.get(name) or rows.get(_SAME_KIND.get(kind, kind))
    return None if row is None else float(row[0])


@cache
def _published() -> dict[str, Any]:
    return tomllib.loads(files("cascader.evaluation").joinpath("published.toml").read_text(encoding="utf-8"))
