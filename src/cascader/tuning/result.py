"""The result of tuning: the cascades that were tried on valid, the best within a budget, and their files."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from annotated_types import Ge, Len

from cascader.cascade import Alpha, Cascade, Fusion, Tier
from cascader.cascade.blend import Pruned, Scale
from cascader.cascade.pruners import load_pruner
from cascader.errors import DataError, SettingsError
from cascader.evaluation.metrics import paired_p_values
from cascader.graph import FloatArray, IntArray, KnowledgeGraph
from cascader.records import Seconds, Sha256, Share, TierName, naming, read_record, write_record
from cascader.scoring.scorer import Scorer
from cascader.storage import Array, read_arrays, sha256_of, write_arrays

logger = logging.getLogger(__name__)

#: The costs of a trial, by the names of its fields.
Cost = Literal["pairs_per_query", "seconds_per_query"]
COSTS: tuple[Cost, ...] = get_args(Cost)
#: The most candidates per question that a tier that reads pairs is given, and which share of all entities at most,
#: unless that is too few to choose from: to read nearly all of a small graph's entities is no pruning.
READ_TOP = 100
_READ_SHARE, _READ_AT_LEAST = 0.1, 20


def read_top_of(kg: KnowledgeGraph) -> int:
    """The most candidates per question that a tier that reads pairs is given on this graph."""
    return min(READ_TOP, max(_READ_AT_LEAST, int(_READ_SHARE * len(kg.entities))))


#: A gain is beyond chance if swapping the two sums at random gives one as large in fewer than 5 % of cases (one-sided).
_CHANCE = 0.05


def chance_of(gains: FloatArray, triple_of: IntArray) -> float:
    """How probable a mean gain this large would be by chance alone, from the gains of the queries; one-sided."""
    per_triple = np.bincount(triple_of, weights=gains) / np.bincount(triple_of)
    two_sided = paired_p_values(per_triple[None, :], seed=0)[0]
    return two_sided / 2 if per_triple.mean() > 0 else 1 - two_sided / 2


def is_beyond_chance(p_value: float | None) -> bool:
    """Whether a gain with this p-value is more than chance would give; what gains on nothing has no p-value."""
    return p_value is None or p_value < _CHANCE


@dataclass(frozen=True)
class Budget:
    """What answering may cost in all: `seconds`, or `pairs` that are read; None means no limit.

    >>> Budget(seconds=2.5, pairs=1_000).allows(seconds=1.0, pairs=1_200)
    False
    """

    seconds: float | None = None
    pairs: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "pairs"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise SettingsError(f"the budget is {value} {name}, expected 0 or more.")

    def allows(self, seconds: float, pairs: float) -> bool:
        """Return whether this cost is within the budget."""
        return (self.seconds is None or seconds <= self.seconds) and (self.pairs is None or pairs <= self.pairs)


@dataclass(frozen=True)
class Trial:
    """A cascade that was tried on valid, and its estimated cost."""

    cascade: Cascade
    mrr: float  # on valid
    pairs_per_query: float
    seconds_per_query: float  # estimated for this machine
    coverage: float | None = None  # on the half of valid that no pruner has learned from
    p_value: float | None = None  # how probable its gain over the cheaper cascade is by chance; None: none is cheaper

    @property
    def earns_its_cost(self) -> bool:
        """Whether its gain over the cheaper cascade is beyond chance."""
        return is_beyond_chance(self.p_value)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The names of all tiers, including the first."""
        return (self.cascade.name, *(tier.name for tier in self.cascade.tiers))

    def as_dict(self) -> dict[str, Any]:
        """Return the trial as a JSON object, without what its pruners have learned."""
        return {
            **cascade_to_dict(self.cascade),
            "valid_mrr": round(self.mrr, 6),
            "pairs_per_query": round(self.pairs_per_query, 3),
            "seconds_per_query": self.seconds_per_query,
            "coverage": self.coverage,
            "p_value": self.p_value,
        }


def cascade_to_dict(cascade: Cascade) -> dict[str, Any]:
    """Describe a cascade as a JSON object, without the arrays that its pruners have learned."""
    return {
        "tiers": [cascade.name, *(tier.name for tier in cascade.tiers)],
        "later": [tier_to_dict(tier) for tier in cascade.tiers],
    }


@dataclass(frozen=True)
class SavedTier:
    """A later tier of a cascade, as a JSON file has it."""

    tier: TierName
    alpha: Alpha
    keep: dict[str, Any] | None  # the settings of its pruner, which checks them itself
    scale: Scale
    pruned: Pruned


@dataclass(frozen=True)
class SavedCascade:
    """A cascade, as a JSON file has it; `scorers` of these names make it whole again."""

    tiers: Annotated[tuple[TierName, ...], Len(min_length=1)]
    later: tuple[SavedTier, ...]

    def cascade(self, scorers: Mapping[str, Scorer], arrays: Mapping[str, Array], prefix: str = "") -> Cascade:
        """Rebuild the cascade; `arrays` is what its pruners have learned, under names that start with the prefix."""
        missing = [name for name in (*self.tiers, *(later.tier for later in self.later)) if name not in scorers]
        if missing:
            raise DataError(
                f"this cascade was tuned with a tier {missing[0]!r}, which this run does not have. Tune again."
            )
        tiers = tuple(_tier(later, scorers, arrays, f"{prefix}{later.tier}/") for later in self.later)
        return Cascade(scorers[self.tiers[0]], tiers, name=self.tiers[0])


def tier_to_dict(tier: Tier) -> dict[str, Any]:
    """Describe a tier of a cascade as a JSON object, without the arrays its pruner has learned."""
    return {
        "tier": tier.name,
        "alpha": tier.weight.as_dict(),
        "keep": None if tier.keep is None else tier.keep.as_dict(),
        "scale": tier.fusion.scale,
        "pruned": tier.fusion.pruned,
    }


def pareto_front(trials: Sequence[Trial], cost: Cost = "pairs_per_query") -> list[Trial]:
    """Return the trials that none beats at the same or lower cost, cheapest first; MRRs are rounded to six digits."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (getattr(trial, cost), -round(trial.mrr, 6))):
        if not front or round(trial.mrr, 6) > round(front[-1].mrr, 6):
            front.append(trial)
    return front


@dataclass(frozen=True)
class Plan:
    """The cascade to use within a budget, and its estimated cost."""

    trial: Trial
    query_count: int

    @property
    def seconds(self) -> float:
        """The estimated time for all queries."""
        return self.trial.seconds_per_query * self.query_count

    @property
    def pairs(self) -> float:
        """The estimated number of pairs to read for all queries."""
        return self.trial.pairs_per_query * self.query_count


@dataclass(frozen=True)
class TuningResult:
    """All trials of a tuning; the first one is the first tier alone."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Cascade:
        """The cascade with the highest valid MRR of those whose gain is beyond chance, at any cost."""
        return self.best_trial.cascade

    @property
    def best_trial(self) -> Trial:
        """The trial of the best cascade."""
        return self.plan(Budget(), 1).trial

    def within(self, *, pairs_per_query: float | None = None, seconds_per_query: float | None = None) -> Cascade:
        """Return the best cascade that costs no more than this per query."""
        pairs = None if pairs_per_query is None else int(pairs_per_query)
        return self.plan(Budget(seconds_per_query, pairs), 1).trial.cascade

    def plan(self, budget: Budget, query_count: int) -> Plan:
        """Choose the best trial that fits a budget for `query_count` queries, or the first tier alone if none does.

        One whose gain over a cheaper cascade may be chance is never chosen.
        """
        earning = [trial for trial in self.trials if trial.earns_its_cost] or self.trials[:1]
        plans = [Plan(trial, query_count) for trial in earning]
        fitting = [plan for plan in plans if budget.allows(plan.seconds, plan.pairs)] or plans[:1]
        return max(fitting, key=lambda plan: (plan.trial.mrr, -plan.pairs))  # not by seconds, which vary


FORMAT = 4
_FILE, _ARRAYS = "tuning.json", "tuning.safetensors"


@dataclass(frozen=True)
class _SavedTrial(SavedCascade):
    valid_mrr: Share
    pairs_per_query: Annotated[float, Ge(0)]
    seconds_per_query: Seconds
    coverage: Share | None
    p_value: Share | None


@dataclass(frozen=True)
class _SavedResult:
    identity: dict[str, str]
    arrays: Sha256  # of the other file
    trials: Annotated[tuple[_SavedTrial, ...], Len(min_length=1)]


def save_tuned(tuned: TuningResult, folder: Path, identity: Mapping[str, str]) -> None:
    """Write `tuning.safetensors`, then `tuning.json` with the sum of both, so that the second exists only if both do.

    `identity` says which models the result is for: a hash for each tier.
    """
    arrays = {
        f"{i}/{tier.name}/{name}": array
        for i, trial in enumerate(tuned.trials)
        for tier in trial.cascade.tiers
        if tier.keep is not None
        for name, array in tier.keep.tensors().items()
    }
    write_arrays(folder / _ARRAYS, arrays)
    trials = [trial.as_dict() for trial in tuned.trials]
    about = {"identity": dict(identity), "arrays": sha256_of(folder / _ARRAYS)}
    write_record(folder / _FILE, {"format": FORMAT, **about, "trials": trials})


def load_tuned(folder: Path, identity: Mapping[str, str], scorers: Mapping[str, Scorer]) -> TuningResult | None:
    """Load what `save_tuned` wrote; None if there is nothing, or nothing for these models.

    `scorers` are the tiers by name.
    """
    path, advice = folder / _FILE, "Delete it to tune again."
    if not path.exists():
        return None
    saved = read_record(path, _SavedResult, FORMAT, advice)
    if saved.identity != dict(identity):
        return None
    if not (folder / _ARRAYS).exists() or sha256_of(folder / _ARRAYS) != saved.arrays:
        # A kill between the two files leaves this behind, too.
        logger.warning("%s does not belong to %s: tuning again.", folder / _ARRAYS, path)
        return None
    arrays = read_arrays(folder / _ARRAYS)
    with naming(path, advice):
        return TuningResult(tuple(_trial(trial, scorers, arrays, i) for i, trial in enumerate(saved.trials)))


def _trial(saved: _SavedTrial, scorers: Mapping[str, Scorer], arrays: Mapping[str, Array], number: int) -> Trial:
    return Trial(
        saved.cascade(scorers, arrays, f"{number}/"),
        saved.valid_mrr,
        saved.pairs_per_query,
        saved.seconds_per_query,
        saved.coverage,
        saved.p_value,
    )


def _tier(saved: SavedTier, scorers: Mapping[str, Scorer], arrays: Mapping[str, Array], prefix: str) -> Tier:
    learned = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return Tier(
        name=saved.tier,
        scorer=scorers[saved.tier],
        alpha=saved.alpha,
        keep=None if saved.keep is None else load_pruner(saved.keep, learned),
        fusion=Fusion(saved.scale, saved.pruned),
    )
