"""A limit on what another pruner keeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cascader.cascade.pruners.pruner import Pruner
from cascader.errors import SettingsError
from cascader.graph import Array, Candidates, FloatArray, Queries
from cascader.graph.ragged import positions_within


@dataclass(frozen=True)
class Capped:
    """What `pruner` keeps, but no more than the `k` best of it."""

    kind: ClassVar[str] = "capped"
    k: int
    pruner: Pruner

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"k is {self.k}, expected at least 1 candidate.")

    def keep(self, queries: Queries, scores: FloatArray) -> Candidates:
        """The candidates of each query to keep, best first; masked ones never are."""
        kept = self.pruner.keep(queries, scores)
        return kept.where(positions_within(kept.counts) < self.k)

    def __str__(self) -> str:
        return f"{self.pruner}, at most {self.k}"

    def as_dict(self) -> dict[str, Any]:
        """The limit, and the other pruner's settings."""
        return {"pruner": self.kind, "k": self.k, "of": self.pruner.as_dict()}

    def tensors(self) -> dict[str, Array]:
        """What the other pruner has learnt."""
        return self.pruner.tensors()

    @classmethod
    def load(cls, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> "Capped":
        """From what `as_dict` and `tensors` gave."""
        from cascader.cascade.pruners.registry import load_pruner

        return cls(saved["k"], load_pruner(saved["of"], tensors))
