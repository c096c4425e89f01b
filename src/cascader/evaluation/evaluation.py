"""The result of an evaluation: its ranks, the metrics computed from them, and how they were obtained."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cascader.display import html_table
from cascader.errors import DataError
from cascader.evaluation.metrics import (
    CONFIDENCE,
    METRICS,
    GoldRanks,
    Interval,
    Labels,
    Metrics,
    Ranks,
    mean_intervals,
    slices_of,
)
from cascader.graph import SPLITS, FloatArray, KnowledgeGraph, Queries, Side, SplitName
from cascader.records import check_sum, write_record
from cascader.storage import read_json, read_parquet, versions_of, write_parquet
from cascader.wording import counted

#: Whose true answers do not count against the gold one: those of all splits, as is usual, or, when valid is evaluated,
#: those of train and valid only.
Filtering = Literal["standard", "strict"]
FILTERINGS: tuple[Filtering, ...] = get_args(Filtering)

FORMAT = 2
_PACKAGES = ("cascader", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "onnxruntime")
_TEXT_COLUMNS = ("head", "relation", "tail", "side")
_RANK_COLUMNS = ("rank", "optimistic_rank", "pessimistic_rank", "raw_optimistic_rank", "raw_pessimistic_rank")
#: The fields of a result file that are read back as they are, with the types that JSON gives them.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "dataset": str,
    "split": str,
    "filtering": str,
    "seed": int,
    "data_hash": str,
    "seconds": (int, float),
    "peak_memory_bytes": (int, type(None)),
    "versions": dict,
    "machine": dict,
    "about": dict,
}
_ADVICE = "Evaluate again to rewrite both files."


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The rank of every query of a split, and the metrics computed from them.

    Saved as two files: `<name>.json` with the metrics, and `<name>.ranks.parquet` with the ranks, from which anyone
    can recompute them.

    >>> import tempfile
    >>> from cascader import Frequency, KnowledgeGraph, evaluate
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], test=[("b", "r", "c")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = evaluate(Frequency().fit(kg), kg).save(folder)
    ...     Evaluation.load(path).metrics.queries  # a head and a tail are asked for
    2
    """

    name: str
    dataset: str
    split: SplitName
    filtering: Filtering
    triples: list[tuple[str, str, str]]  # head, relation and tail of each query, by id
    sides: list[Side]  # the side that each query asks for
    ranks: GoldRanks
    slices: Mapping[str, Mapping[str, Metrics]]
    seed: int
    data_hash: str
    seconds: float
    peak_memory_bytes: int | None
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)  # how the scorer describes itself: settings, training
    command: str = ""  # the command line that made it; empty: it was made in Python

    @classmethod
    def of(
        cls,
        kg: KnowledgeGraph,
        queries: Queries,
        ranks: GoldRanks,
        *,
        name: str,
        split: SplitName,
        filtering: Filtering,
        seed: int,
        seconds: float,
        peak_memory_bytes: int | None,
        about: Mapping[str, Any],
    ) -> "Evaluation":
        """Build the result from the ranks of `queries`, with the metrics of each slice of `kg`."""
        entities, relations = kg.entities, kg.relations
        return cls(
            name=name,
            dataset=kg.name,
            split=split,
            filtering=filtering,
            triples=[(entities[h].id, relations[r].id, entities[t].id) for h, r, t in queries.triples().tolist()],
            sides=queries.sides,
            ranks=ranks,
            slices={way: by_label(ranks.filtered.mean, labels) for way, labels in slices_of(kg, queries).items()},
            seed=seed,
            data_hash=kg.data_hash,
            seconds=seconds,
            peak_memory_bytes=peak_memory_bytes,
            versions={"python": platform.python_version(), **versions_of(_PACKAGES)},
            machine={
                "cores": os.cpu_count(),
                "architecture": platform.machine(),
                "system": platform.system(),
            },
            about=about,
        )

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics to report: filtered, with ties at their mean rank."""
        return Metrics.of(self.ranks.filtered.mean)

    @property
    def mrr(self) -> float:
        """The filtered mean reciprocal rank."""
        return self.metrics["mrr"]

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The bootstrap confidence interval of each filtered metric."""
        return dict(zip(METRICS, mean_intervals(self.per_triple, self.seed), strict=True))

    @cached_property
    def per_triple(self) -> NDArray[np.float64]:
        """Each metric's mean over the queries of each triple; shape (metrics, triples), triples in sorted order."""
        queries = np.bincount(self._triple_of)
        per_query = [metric(self.ranks.filtered.mean) for metric in METRICS.values()]
        return np.stack([np.bincount(self._triple_of, weights=values) / queries for values in per_query])

    @cached_property
    def _triple_of(self) -> NDArray[np.intp]:
        """The position of each query's triple among the sorted triples; shape (queries,)."""
        place = {triple: i for i, triple in enumerate(sorted(set(self.triples)))}
        return np.array([place[triple] for triple in self.triples])

    def __repr__(self) -> str:
        figures = ", ".join(f"{metric} {self.metrics[metric]:.4f}" for metric in METRICS if metric != "mean_rank")
        return f"{self.name} on {self.dataset} {self.split}: {figures} ({counted(self.metrics.queries, 'query')})"

    def _repr_html_(self) -> str:
        figures = [f"{self.metrics[metric]:.4f}" for metric in METRICS]
        caption = f"{self.name} on {self.dataset} {self.split}"
        return html_table([*METRICS, "queries"], [[*figures, f"{self.metrics.queries:,}"]], caption)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the ranks, as written to the result file."""
        return {
            "format": FORMAT,
            "name": self.name,
            "dataset": self.dataset,
            "split": self.split,
            "filtering": self.filtering,
            **self.metrics.as_dict(),
            "confidence": CONFIDENCE,
            "intervals": {metric: list(interval) for metric, interval in self.intervals.items()},
            "optimistic": Metrics.of(self.ranks.filtered.optimistic).as_dict(),
            "pessimistic": Metrics.of(self.ranks.filtered.pessimistic).as_dict(),
            "raw": Metrics.of(self.ranks.raw.mean).as_dict(),
            "slices": {
                way: {label: metrics.as_dict() for label, metrics in labels.items()}
                for way, labels in self.slices.items()
            },
            "seed": self.seed,
            "data_hash": self.data_hash,
            "seconds": round(self.seconds, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
            "command": self.command,
            "about": dict(self.about),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `<name>.ranks.parquet` and `<name>.json` to `folder`, and return the path of the latter."""
        if Path(self.name).name != self.name:
            raise DataError(f"the name {self.name!r} is not a file name. Choose one without slashes.")
        write_parquet(
            Path(folder) / f"{self.name}.ranks.parquet",
            {
                "head": [head for head, _, _ in self.triples],
                "relation": [relation for _, relation, _ in self.triples],
                "tail": [tail for _, _, tail in self.triples],
                "side": self.sides,
                "rank": self.ranks.filtered.mean,
                "optimistic_rank": self.ranks.filtered.optimistic,
                "pessimistic_rank": self.ranks.filtered.pessimistic,
                "raw_optimistic_rank": self.ranks.raw.optimistic,
                "raw_pessimistic_rank": self.ranks.raw.pessimistic,
            },
        )
        path = Path(folder) / f"{self.name}.json"
        write_record(path, self.as_dict())
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Load a saved evaluation by the path of either file; metrics that do not follow from the ranks are an error.

        The metrics are computed from the ranks: a file written before a metric was added has that one, too. Only the
        slices that depend on the graph have no more metrics than the file.
        """
        stem = Path(path).name.removesuffix(".json").removesuffix(".ranks.parquet")
        json_path, ranks_path = (Path(path).with_name(stem + suffix) for suffix in (".json", ".ranks.parquet"))
        saved = _read_fields(json_path)
        columns = read_parquet(ranks_path)
        heads, relations, tails, sides = (_texts(ranks_path, columns, name) for name in _TEXT_COLUMNS)
        ranks = _read_ranks(ranks_path, columns)
        by_ranks = {"side": sides, "relation": relations}
        recomputed = {way: by_label(ranks.filtered.mean, np.array(by, dtype=object)) for way, by in by_ranks.items()}
        _check_metrics(json_path, saved, ranks)
        slices = _read_slices(json_path, saved.get("slices"), recomputed)
        return cls(
            **{name: saved[name] for name in _FIELDS},
            triples=list(zip(heads, relations, tails, strict=True)),
            sides=["tail" if side == "tail" else "head" for side in sides],
            ranks=ranks,
            slices=slices,
            command=str(saved.get("command", "")),  # results had none before
        )


def by_label(ranks: FloatArray, labels: Labels) -> dict[str, Metrics]:
    """The metrics of the queries with each label."""
    order = np.argsort(labels, kind="stable")
    names, starts = np.unique(labels[order], return_index=True)
    parts = np.split(ranks[order], starts[1:])
    return {str(name): Metrics.of(part) for name, part in zip(names, parts, strict=True)}


def _read_fields(path: Path) -> dict[str, Any]:
    saved = read_json(path)
    if saved.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {saved.get('format')!r}, expected {FORMAT}. It is not an evaluation, or was written by "
            "a newer cascader: update, or evaluate again."
        )
    check_sum(path, saved, _ADVICE)  # results had none before
    saved.setdefault("about", {})  # what a baseline has to say of itself
    for name, kind in _FIELDS.items():
        if name not in saved or not isinstance(saved[name], kind):
            raise DataError(f"{path} has {name} {saved.get(name)!r}, which no evaluation writes. {_ADVICE}")
    if saved["split"] not in SPLITS or saved["filtering"] not in FILTERINGS or saved["seed"] < 0:
        found = f"split {saved['split']!r}, filtering {saved['filtering']!r} and seed {saved['seed']}"
        raise DataError(f"{path} has {found}. {_ADVICE}")
    return saved


def _texts(path: Path, columns: Mapping[str, list[Any]], name: str) -> list[str]:
    values = columns.get(name)
    if values is None or not all(isinstance(value, str) for value in values):
        raise DataError(f"{path} has no text column {name}. {_ADVICE}")
    return values


def _read_ranks(path: Path, columns: Mapping[str, list[Any]]) -> GoldRanks:
    mean, *others = (_rank_column(path, columns, name) for name in _RANK_COLUMNS)
    ranks = GoldRanks(filtered=Ranks(*others[:2]), raw=Ranks(*others[2:]))
    if not np.array_equal(mean, ranks.filtered.mean):
        raise DataError(f"{path}: rank is not the mean of optimistic_rank and pessimistic_rank. {_ADVICE}")
    return ranks


def _rank_column(path: Path, columns: Mapping[str, list[Any]], name: str) -> NDArray[np.float64]:
    values = columns.get(name)
    if not values or not all(isinstance(value, int | float) and value >= 1 for value in values):
        raise DataError(f"{path} has no column {name} of numbers that are at least 1. {_ADVICE}")
    return np.array(values, dtype=np.float64)


def _check_metrics(path: Path, saved: Mapping[str, Any], ranks: GoldRanks) -> None:
    """Check the metrics of all queries that the file has against those that its ranks give."""
    optimistic, pessimistic = ranks.filtered.optimistic, ranks.filtered.pessimistic
    _check_equal(path, "", _metrics(path, "all queries", saved), Metrics.of(ranks.filtered.mean))
    for what, of in (("optimistic", optimistic), ("pessimistic", pessimistic), ("raw", ranks.raw.mean)):
        _check_equal(path, f"{what} ", _metrics(path, what, saved.get(what)), Metrics.of(of))


def _read_slices(
    path: Path,
    saved: object,
    recomputed: Mapping[str, Mapping[str, Metrics]],
) -> dict[str, Mapping[str, Metrics]]:
    """The metrics of each slice: recomputed and checked if the ranks suffice, otherwise as saved."""
    if not isinstance(saved, dict) or not all(isinstance(labels, dict) for labels in saved.values()):
        raise DataError(f"{path} has slices {saved!r}, which no evaluation writes. {_ADVICE}")
    found: dict[str, Mapping[str, Metrics]] = {
        way: {label: _metrics(path, f"{way} {label}", values) for label, values in labels.items()}
        for way, labels in saved.items()
    }
    for way, expected in recomputed.items():
        if found.get(way, {}).keys() != expected.keys():
            raise DataError(f"{path} has other slices by {way} than its ranks give. {_ADVICE}")
        for label, metrics in expected.items():
            _check_equal(path, f"{way} {label} ", found[way][label], metrics)
    return {**found, **recomputed}


def _metrics(path: Path, what: str, saved: Any) -> Metrics:  # noqa: ANN401 - whatever the JSON file has
    """The metrics that the file has: one that was added later is missing."""
    values = {name: saved[name] for name in METRICS if name in saved} if isinstance(saved, dict) else {}
    numbers = [*values.values(), saved.get("queries")] if values else []
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        raise DataError(f"{path} has no metrics for {what}. {_ADVICE}")
    return Metrics(saved["queries"], values)


def _check_equal(path: Path, what: str, found: Metrics, recomputed: Metrics) -> None:
    expected = recomputed.as_dict()
    for metric, value in found.as_dict().items():
        if not np.isclose(value, expected[metric], rtol=1e-9):
            raise DataError(f"{path} has {what}{metric} {value}, but its ranks give {expected[metric]}. {_ADVICE}")
