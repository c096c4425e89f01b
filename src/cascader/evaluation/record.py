"""The record of an evaluation: its ranks, its figures, and what they were made with."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError
from cascader.evaluation.intervals import CONFIDENCE, Interval, mean_intervals
from cascader.evaluation.metrics import METRICS, Metrics
from cascader.evaluation.ranks import GoldRanks, Ranks
from cascader.evaluation.slices import slices_of
from cascader.graph import FloatArray, KnowledgeGraph, Queries, SplitName
from cascader.storage import read_json, read_parquet, versions_of, write_json, write_parquet

FORMAT = 1
_PACKAGES = ("cascader", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "onnxruntime")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The ranks of every query of a split, and all that is computed from them.

    Kept as two files: `<name>.json` for people and tables, and `<name>.ranks.parquet` from which anyone can
    recompute each figure.
    """

    name: str
    dataset: str
    split: SplitName
    triples: NDArray[np.str_]  # (queries, 3) head, relation, tail ids
    sides: NDArray[np.str_]  # (queries,) the side that was asked for
    ranks: GoldRanks
    slices: Mapping[str, Mapping[str, Metrics]]
    seed: int
    data_hash: str
    seconds: float
    peak_memory_bytes: int | None
    versions: Mapping[str, str]
    machine: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        kg: KnowledgeGraph,
        queries: Queries,
        ranks: GoldRanks,
        *,
        name: str,
        split: SplitName,
        seed: int,
        seconds: float,
        peak_memory_bytes: int | None,
    ) -> "Evaluation":
        """Record what was measured on `kg`, with the slices that only the graph can tell."""
        entity_ids = np.array([entity.id for entity in kg.entities])
        relation_ids = np.array([relation.id for relation in kg.relations])
        heads, relations, tails = queries.triples().T
        return cls(
            name=name,
            dataset=kg.name,
            split=split,
            triples=np.stack([entity_ids[heads], relation_ids[relations], entity_ids[tails]], axis=1),
            sides=np.array(queries.sides),
            ranks=ranks,
            slices={way: _by_label(ranks.filtered.mean, labels) for way, labels in slices_of(kg, queries).items()},
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
        )

    @cached_property
    def metrics(self) -> Metrics:
        """The filtered figures at the mean rank of ties: the ones to report."""
        return Metrics.of(self.ranks.filtered.mean)

    @property
    def mrr(self) -> float:
        """The filtered mean reciprocal rank."""
        return self.metrics["mrr"]

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The bootstrap interval of each filtered figure."""
        return dict(zip(METRICS, mean_intervals(self.per_triple, self.seed), strict=True))

    @cached_property
    def per_triple(self) -> NDArray[np.float64]:
        """Each metric's mean over the queries of each triple; shape (metrics, triples), triples in sorted order."""
        queries = np.bincount(self._triple_of)
        per_query = [metric(self.ranks.filtered.mean) for metric in METRICS.values()]
        return np.stack([np.bincount(self._triple_of, weights=values) / queries for values in per_query])

    @cached_property
    def _triple_of(self) -> NDArray[np.intp]:
        """The place of each query's triple among the sorted triples; shape (queries,)."""
        triples = [tuple(triple) for triple in self.triples.tolist()]
        place = {triple: i for i, triple in enumerate(sorted(set(triples)))}
        return np.array([place[triple] for triple in triples])

    def __str__(self) -> str:
        figures = ", ".join(f"{metric} {self.metrics[metric]:.4f}" for metric in METRICS if metric != "mean_rank")
        return f"{self.name} on {self.dataset} {self.split}: {figures} ({self.metrics.queries:,} queries)"

    def as_dict(self) -> dict[str, Any]:
        """All but the ranks, as it stands in the result file."""
        return {
            "format": FORMAT,
            "name": self.name,
            "dataset": self.dataset,
            "split": self.split,
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
            "seconds": round(self.seconds, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `<name>.ranks.parquet`, then `<name>.json`, and return the latter's path."""
        heads, relations, tails = self.triples.T
        write_parquet(
            Path(folder) / f"{self.name}.ranks.parquet",
            {
                "head": heads,
                "relation": relations,
                "tail": tails,
                "side": self.sides,
                "rank": self.ranks.filtered.mean,
                "optimistic_rank": self.ranks.filtered.optimistic,
                "pessimistic_rank": self.ranks.filtered.pessimistic,
                "raw_optimistic_rank": self.ranks.raw.optimistic,
                "raw_pessimistic_rank": self.ranks.raw.pessimistic,
            },
        )
        path = Path(folder) / f"{self.name}.json"
        write_json(path, self.as_dict())
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Read an evaluation back from its `.json`; the figures must follow from the ranks beside it."""
        path = Path(path)
        if path.suffix != ".json":
            path = path.with_name(path.name.removesuffix(".ranks.parquet") + ".json")
        saved = read_json(path)
        if saved.get("format") != FORMAT:
            raise DataError(
                f"{path} has format {saved.get('format')!r}, expected {FORMAT}. It is no evaluation, or one written "
                "by a newer cascader: update, or evaluate again."
            )
        columns = _read_ranks(path.with_name(path.name.removesuffix(".json") + ".ranks.parquet"))
        evaluation = cls(
            name=saved["name"],
            dataset=saved["dataset"],
            split=saved["split"],
            triples=np.array([columns["head"], columns["relation"], columns["tail"]]).T,
            sides=np.array(columns["side"]),
            ranks=GoldRanks(
                filtered=Ranks(np.array(columns["optimistic_rank"]), np.array(columns["pessimistic_rank"])),
                raw=Ranks(np.array(columns["raw_optimistic_rank"]), np.array(columns["raw_pessimistic_rank"])),
            ),
            slices={
                way: {label: _metrics_from(values) for label, values in labels.items()}
                for way, labels in saved["slices"].items()
            },
            seed=saved["seed"],
            data_hash=saved["data_hash"],
            seconds=saved["seconds"],
            peak_memory_bytes=saved["peak_memory_bytes"],
            versions=saved["versions"],
            machine=saved["machine"],
        )
        _check_figures(path, saved, evaluation.metrics)
        return evaluation


def _by_label(ranks: FloatArray, labels: NDArray[np.str_]) -> dict[str, Metrics]:
    return {str(label): Metrics.of(ranks[labels == label]) for label in np.unique(labels)}


def _metrics_from(saved: dict[str, Any]) -> Metrics:
    values = dict(saved)
    return Metrics(values.pop("queries"), values)


def _read_ranks(path: Path) -> dict[str, list[Any]]:
    columns = read_parquet(path)
    needed = ["head", "relation", "tail", "side"]
    needed += [f"{setting}{way}_rank" for setting in ("", "raw_") for way in ("optimistic", "pessimistic")]
    missing = [column for column in needed if column not in columns]
    if missing:
        raise DataError(f"{path} lacks the columns {', '.join(missing)}. Evaluate again to write it anew.")
    return columns


def _check_figures(path: Path, saved: Mapping[str, Any], metrics: Metrics) -> None:
    for metric, value in metrics.as_dict().items():
        if not np.isclose(saved.get(metric, np.nan), value, rtol=1e-9):
            raise DataError(
                f"{path} says {metric} {saved.get(metric)}, but its ranks give {value}. "
                "One of the two files was changed: evaluate again."
            )
