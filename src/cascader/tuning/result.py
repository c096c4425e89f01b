"""What tuning finds: cascades that were tried on valid, and the best of them within a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from cascader.cascade import Cascade, Tier
from cascader.tuning.budget import Budget

#: What a trial costs: the names of its fields.
Cost = Literal["pairs_per_query", "seconds_per_query"]
COSTS: tuple[Cost, ...] = get_args(Cost)


@dataclass(frozen=True)
class Trial:
    """A cascade that was tried on valid, and what it would cost."""

    cascade: Cascade
    mrr: float  # on valid
    pairs_per_query: float  # that are read together
    seconds_per_query: float  # as predicted for this machine
    coverage: float | None = None  # the share of golds kept on the half of valid that no pruner has learnt from

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers' names, the first included."""
        return (self.cascade.name, *(tier.name for tier in self.cascade.tiers))

    def as_dict(self) -> dict[str, Any]:
        """What there is to tell, as JSON can hold it."""
        return {
            "tiers": list(self.tiers),
            "later": [described(tier) for tier in self.cascade.tiers],
            "valid_mrr": round(self.mrr, 6),
            "pairs_per_query": round(self.pairs_per_query, 3),
            "seconds_per_query": self.seconds_per_query,
            "coverage": self.coverage,
        }


def described(tier: Tier) -> dict[str, Any]:
    """A tier of a cascade as JSON can hold it, without what its pruner has learnt."""
    return {
        "tier": tier.name,
        "alpha": tier.weight.as_dict(),
        "keep": None if tier.keep is None else tier.keep.as_dict(),
        "scale": tier.fusion.scale,
        "pruned": tier.fusion.pruned,
    }


def pareto_front(trials: Sequence[Trial], cost: Cost = "pairs_per_query") -> list[Trial]:
    """The trials that no other beats at the same cost or less, cheapest first; MRRs count to six digits."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (getattr(trial, cost), -round(trial.mrr, 6))):
        if not front or round(trial.mrr, 6) > round(front[-1].mrr, 6):
            front.append(trial)
    return front


@dataclass(frozen=True)
class Plan:
    """The cascade to take within a budget, and what it is predicted to cost."""

    trial: Trial
    query_count: int

    @property
    def seconds(self) -> float:
        """The predicted time for all queries."""
        return self.trial.seconds_per_query * self.query_count

    @property
    def pairs(self) -> float:
        """The predicted number of pairs that are read together."""
        return self.trial.pairs_per_query * self.query_count


@dataclass(frozen=True)
class TuningResult:
    """All that was tried; the first trial is the first tier alone."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Cascade:
        """The cascade with the highest MRR on valid, whatever it costs; of equals, the one that reads least."""
        return self.plan(Budget(), 1).trial.cascade

    def plan(self, budget: Budget, query_count: int) -> Plan:
        """The best that fits a budget for so many queries; the first tier alone where nothing else does."""
        plans = [Plan(trial, query_count) for trial in self.trials]
        fitting = [plan for plan in plans if budget.allows(plan.seconds, plan.pairs)] or plans[:1]
        return max(fitting, key=lambda plan: (plan.trial.mrr, -plan.pairs))  # not by seconds, which vary
