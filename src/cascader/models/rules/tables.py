"""Rules as columns of numbers, chains of facts and rules with a constant, and the settings they are found with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Self, TypedDict

import numpy as np

from cascader.graph import Array, BoolArray, FloatArray, IntArray
from cascader.models.files import array_of
from cascader.models.settings import Between, Settings

if TYPE_CHECKING:
    from torch import Tensor

#: Where a chain has no further step, and where a rule with a constant holds for any entity.
NONE = -1
_MAY_BE_NONE = ("paths", "entities")


@dataclass(frozen=True)
class RulesSettings(Settings):
    """All settings of rules; the defaults are a compromise between what valid likes on five graphs."""

    max_length: Annotated[int, Between(1, 3)] = 3  #: facts in a chain from the anchor to the answer
    max_seconds: Annotated[float, Between(1e-3, 1e6)] = 60.0  #: of mining, where `fit` is given no time limit
    prior_count: Annotated[float, Between(0, 1e6)] = 5.0  #: cases added to every body: few cases prove little
    min_support: Annotated[int, Between(1, 1_000_000)] = 2  #: true predictions that a rule must have made
    best: Annotated[int, Between(1, 255)] = 5  #: rules that are joined for a candidate
    discount: Annotated[float, Between(0, 1)] = 0.5  #: of each further rule, which mostly says what the last one said
    max_chains: Annotated[int, Between(1, 1_000_000)] = 1_000  #: kept per relation and side, the most confident
    max_constants: Annotated[int, Between(0, 10_000_000)] = 10_000  #: rules with a constant, likewise
    max_candidates: Annotated[int, Between(1, 10_000_000)] = 1_000  #: chains measured per relation, side and length
    seed: Annotated[int, Between(0, 2**31 - 1)] = 0  #: draws the facts and anchors where not all are looked at


class RulesOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    max_length: int
    max_seconds: float
    prior_count: float
    min_support: int
    best: int
    discount: float
    max_chains: int
    max_constants: int
    max_candidates: int
    seed: int


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length, one row per rule, sorted by `targets`: the directed relation that is asked for."""

    targets: IntArray  # (rules,)

    @classmethod
    def concatenate(cls, tables: Iterable[Self]) -> Self:
        """All rules of several tables, sorted by target."""
        parts = [cls.empty(), *tables]
        columns = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        order = np.argsort(columns["targets"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})

    @classmethod
    def empty(cls) -> Self:
        """No rules."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | IntArray | BoolArray) -> Self:
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def of(self, target: int) -> Self:
        """The rules for one directed relation."""
        first, last = np.searchsorted(self.targets, [target, target + 1])
        return self[first:last]

    def arrays(self, prefix: str) -> dict[str, Array]:
        """The columns by name, each name after a prefix."""
        return {f"{prefix}{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of_tensors(cls, tensors: "Mapping[str, Tensor]", prefix: str, ends: Mapping[str, int]) -> Self:
        """The table that `arrays` gave; a column in `ends` has whole numbers below its end."""
        count = len(tensors[f"{prefix}targets"])
        columns = {}
        for name in (field.name for field in fields(cls)):
            shape, low = (count, 3) if name == "paths" else (count,), NONE if name in _MAY_BE_NONE else 0
            columns[name] = array_of(tensors, f"{prefix}{name}", shape, low=low, below=ends.get(name))
        if (np.diff(columns["targets"]) < 0).any():
            raise ValueError(f"{prefix}targets are not sorted")
        return cls(**columns)


@dataclass(frozen=True, eq=False)
class Chains(Table):
    """Rules that lead from the anchor to the answer: along up to three facts, or nowhere (the anchor itself).

    A rule's body is all pairs of an anchor and an entity that its chain links, among the anchors that were looked at;
    its support is those of them that are facts. Both are counted apart for what one of many ways leads to, one of few,
    or most of them: `bands`.
    """

    paths: IntArray  # (rules, 3) directed relations, NONE after the last
    bands: IntArray  # (rules,) what `bands_of` gives
    supports: FloatArray  # (rules,)
    bodies: FloatArray  # (rules,)

    def __post_init__(self) -> None:
        if ((self.paths[:, :-1] == NONE) & (self.paths[:, 1:] != NONE)).any():
            raise ValueError("a chain has a step after its end")

    @classmethod
    def empty(cls) -> "Chains":
        """No rules."""
        number = np.empty(0, dtype=np.float32)
        whole, paths = np.empty(0, dtype=np.int32), np.empty((0, 3), dtype=np.int32)
        return cls(whole, paths, np.empty(0, dtype=np.int8), number, number)

    def confidences(self, prior_count: float) -> FloatArray:
        """The share of the body that is true, where `prior_count` further cases are not; shape (rules,)."""
        return self.supports / (self.bodies + prior_count)

    def path_tuples(self) -> list[tuple[int, ...]]:
        """The directed relations of each chain, without what fills its row."""
        rows = zip(self.paths.tolist(), self.lengths().tolist(), strict=True)
        return [tuple(path[:length]) for path, length in rows]

    def lengths(self) -> IntArray:
        """How many facts each chain has; shape (rules,)."""
        return (self.paths != NONE).sum(axis=1)


@dataclass(frozen=True, eq=False)
class ConstantRules(Table):
    """Rules "who has this feature has that answer": a feature is a directed relation to one entity, or to any.

    Each can be read in two ways: which answers go with the features of an anchor (`bodies`: the anchors of the relation
    that have the feature), and which entities are answers to one anchor because of their features (`reaches`: all
    entities that have it).
    """

    relations: IntArray  # (rules,) of the feature
    entities: IntArray  # (rules,) of the feature, NONE for any
    constants: IntArray  # (rules,) the answer that goes with the feature
    supports: FloatArray  # (rules,)
    bodies: FloatArray  # (rules,)
    reaches: FloatArray  # (rules,)

    @classmethod
    def empty(cls) -> "ConstantRules":
        """No rules."""
        whole, number = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return cls(whole, whole, whole, whole, number, number, number)
