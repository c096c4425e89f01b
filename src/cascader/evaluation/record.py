"""The record of an evaluation: its ranks, its figures, and what they were made with."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError
from cascader.evaluation.intervals import CONFIDENCE, Interval, mean_intervals
from cascader.evaluation.metrics import METRICS, Metrics
from cascader.evaluation.ranks import GoldRanks
from cascader.evaluation.slices import Labels, slices_of
from cascader.graph import FloatArray, KnowledgeGraph, Queries, Side, SplitName
from cascader.storage import versions_of, write_json, write_parquet

FORMAT = 1
_PACKAGES = ("cascader", "numpy", "scipy", "torch", "transformers", "sentence-transformers", "onnxruntime")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The ranks of every query of a split, and all that is computed from them.

    Kept as two files: `<name>.json` for people and tables, and `<name>.ranks.parquet` from which anyone can
    recompute each figure.

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
    triples: list[tuple[str, str, str]]  # head, relation and tail of each query, by id
    sides: list[Side]  # the side that each query asked for
    ranks: GoldRanks
    slices: Mapping[str, Mapping[str, Metrics]]
    seed: int
    data_hash: str
    seconds: float
    peak_memory_bytes: int | None
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)  # what the scorer tells of itself: settings, training

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
        about: Mapping[str, Any],
    ) -> "Evaluation":
        """Record what was measured on `kg`, with the slices that only the graph can tell."""
        entities, relations = kg.entities, kg.relations
        return cls(
            name=name,
            dataset=kg.name,
            split=split,
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
        place = {triple: i for i, triple in enumerate(sorted(set(self.triples)))}
        return np.array([place[triple] for triple in self.triples])

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
            "seconds": round(self.seconds, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
            "about": dict(self.about),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `<name>.ranks.parquet`, then `<name>.json`, and return the latter's path."""
        if Path(self.name).name != self.name:
            raise DataError(f"the name {self.name!r} is no file name. Choose one without slashes.")
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
        write_json(path, self.as_dict())
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Read an evaluation back from its `.json`; the figures must follow from the ranks beside it."""
        from cascader.evaluation.loading import load_evaluation

        return load_evaluation(Path(path))


def by_label(ranks: FloatArray, labels: Labels) -> dict[str, Metrics]:
    """The metrics of the queries under each label."""
    order = np.argsort(labels, kind="stable")
    names, starts = np.unique(labels[order], return_index=True)
    parts = np.split(ranks[order], starts[1:])
    return {str(name): Metrics.of(part) for name, part in zip(names, parts, strict=True)}
