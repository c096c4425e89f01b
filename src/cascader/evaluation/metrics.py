"""Metrics of link prediction, each a mean over all queries, and how sure such a mean is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


CONFIDENCE = 0.95
_RESAMPLES = 1000
_PERMUTATIONS = 9999
_BATCH_NUMBERS = 4_000_000  # drawn at once: bounds memory for any number of triples

Interval = tuple[float, float]
Values = NDArray[np.float64]


def mean_intervals(values: Values, seed: int) -> list[Interval]:
    """The percentile bootstrap interval of each row's mean; `values` is (metrics, triples)."""
    from scipy.stats import bootstrap

    if values.shape[1] < 2:  # nothing to resample
        return [(float(mean), float(mean)) for mean in values.mean(axis=1)]
    result = bootstrap(
        (values,),
        np.mean,
        axis=1,
        n_resamples=_RESAMPLES,
        batch=_batch(values),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    lows, highs = result.confidence_interval
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def paired_p_values(differences: Values, seed: int) -> list[float]:
    """The p-value of each row's mean difference, by a two-sided paired randomization test.

    If two models are equally good, swapping them on any triple merely flips a sign. The signs are drawn as bits and
    applied in one matrix product: what takes `scipy.stats.permutation_test` minutes takes this a second.
    """
    rng = np.random.default_rng(seed)
    metrics, triples = differences.shape
    # With a tolerance for rounding, so that a permutation equal to the observation counts as reaching it.
    observed = np.abs(differences.sum(axis=1)) * (1 - 1e-12)
    reached = np.zeros(metrics, dtype=np.int64)
    for start in range(0, _PERMUTATIONS, _batch(differences)):
        count = min(_batch(differences), _PERMUTATIONS - start)
        bits = rng.integers(0, 256, size=(count, -(-triples // 8)), dtype=np.uint8)
        signs = np.unpackbits(bits, axis=1, count=triples) * 2.0 - 1  # (permutations, triples)
        reached += (np.abs(signs @ differences.T) >= observed).sum(axis=0)
    return ((reached + 1) / (_PERMUTATIONS + 1)).tolist()


def _batch(values: Values) -> int:
    return max(1, _BATCH_NUMBERS // values.shape[1])
