"""Which candidates go on to the next tier."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import Candidates, FloatArray, Queries


class Pruner(Protocol):
    """Chooses candidates from a tier's scores; known facts have been masked with -inf before."""

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query that go on, best first; `scores` is (queries, entities)."""
        ...


@dataclass(frozen=True)
class TopK:
    """The `k` best candidates of every query."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"k is {self.k}, expected at least 1 candidate.")

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query that go on, best first; what is masked never does."""
        k = min(self.k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k] if k < scores.shape[1] else np.argsort(-scores, axis=1)
        of_best = np.take_along_axis(scores, best, axis=1)
        best = np.take_along_axis(best, np.argsort(-of_best, axis=1, kind="stable"), axis=1)
        alive = np.take_along_axis(scores, best, axis=1) > -np.inf
        offsets = np.concatenate([[0], np.cumsum(alive.sum(axis=1))])
        return Candidates(offsets, best[alive].astype(np.int32))
