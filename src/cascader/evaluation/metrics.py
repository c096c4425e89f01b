"""The metrics of link prediction, each a mean over all queries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascader.errors import DataError
from cascader.graph import FloatArray
from cascader.html import html_table

#: Every metric is the mean of one number per query, computed from its rank alone.
METRICS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "mrr": lambda ranks: 1 / ranks,
    "hits@1": lambda ranks: (ranks <= 1).astype(np.float64),
    "hits@3": lambda ranks: (ranks <= 3).astype(np.float64),
    "hits@10": lambda ranks: (ranks <= 10).astype(np.float64),
    "mean_rank": lambda ranks: ranks.astype(np.float64),
}


@dataclass(frozen=True, repr=False)
class Metrics:
    """The mean of each metric over a set of queries.

    >>> Metrics.of(np.array([1.0, 4.0]))["mrr"]
    0.625
    """

    queries: int
    values: Mapping[str, float]

    @classmethod
    def of(cls, ranks: FloatArray) -> "Metrics":
        """The metrics of these ranks, one per query."""
        if len(ranks) == 0:
            raise DataError("there are no ranks to average. Evaluate a split that has triples.")
        return cls(len(ranks), {name: float(per_query(ranks).mean()) for name, per_query in METRICS.items()})

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.values.items())
        return f"Metrics({figures}, {self.queries:,} queries)"

    def _repr_html_(self) -> str:
        row = [*(f"{value:.4f}" for value in self.values.values()), f"{self.queries:,}"]
        return html_table([*self.values, "queries"], [row])

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def as_dict(self) -> dict[str, Any]:
        """The metrics as written to a result file."""
        return {"queries": self.queries, **self.values}
