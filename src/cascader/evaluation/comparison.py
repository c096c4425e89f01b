"""Two evaluations of the same queries, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cascader.errors import DataError
from cascader.evaluation.intervals import Interval, mean_intervals, paired_p_values
from cascader.evaluation.metrics import METRICS
from cascader.evaluation.record import Evaluation


@dataclass(frozen=True)
class Difference:
    """How much the second run is above the first in one metric."""

    value: float
    interval: Interval
    p_value: float  # of a paired randomization test, two-sided


@dataclass(frozen=True, eq=False)
class Comparison:
    """A first and a second evaluation, and by metric how they differ: what `compare` gives."""

    first: Evaluation
    second: Evaluation
    differences: Mapping[str, Difference]

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
    """Compare two runs query by query; both must have answered the same queries of the same graph.

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
            "and they are not the same ones. Evaluate both on the whole split."
        )


def _queries(evaluation: Evaluation) -> list[tuple[tuple[str, str, str], str]]:
    return sorted(zip(evaluation.triples, evaluation.sides, strict=True))
