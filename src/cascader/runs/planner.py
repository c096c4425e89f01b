"""Which tiers and presets fit into a budget, and how its time is shared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cascader.models.costs import TrainingCost

#: From the fastest to the most thorough.
PRESETS = ("quick", "balanced", "best")


class CostEstimator(Protocol):
    """What trainings and the tuning after them take."""

    def of(self, tier: str, preset: str) -> TrainingCost:
        """What training a tier takes."""
        ...

    def floor(self, tier: str, preset: str, than: str) -> float:
        """Less than a preset can take, as known without a measurement, from what another one takes."""
        ...

    def tuning(self, tiers: Sequence[str]) -> float:
        """What tuning and calibrating so many tiers takes."""
        ...


@dataclass(frozen=True)
class Choice:
    """The presets of the tiers that are trained; and the first that is not, with what all up to it would need."""

    presets: Mapping[str, str]
    left_out: Mapping[str, float]


def choose(
    tiers: Sequence[str], presets: Sequence[str], prices: CostEstimator, seconds: float, trained: Sequence[str] = ()
) -> Choice:
    """As many tiers as get to their first look at valid in so many seconds; then, tier by tier, the better presets.

    A better preset is taken where all epochs of all tiers still fit. The first tier is always there; those that are
    `trained` already only have to be tuned with the others.
    """
    kept, left_out = list[str](), dict[str, float]()
    for tier in tiers:  # one after the other: what comes behind a tier that is left out need not be measured
        tried = [*kept, tier]
        needed = sum(prices.of(each, presets[0]).least for each in tried)
        if len(tried) + len(trained) > 1 and seconds < math.inf:
            needed += prices.tuning([*trained, *tried])
            if needed > seconds:
                left_out[tier] = needed
                break
        kept = tried
    chosen = {tier: presets[0] for tier in kept}
    for_training = seconds - (prices.tuning([*trained, *kept]) if len(presets) > 1 else 0.0)
    for better in presets[1:]:
        for tier in kept:
            if _follows(better, chosen[tier], presets) and _fits(tier, better, chosen, prices, for_training):
                chosen[tier] = better
    return Choice(chosen, left_out)


def _follows(better: str, present: str, presets: Sequence[str]) -> bool:
    return presets.index(better) == presets.index(present) + 1


def _fits(tier: str, better: str, chosen: Mapping[str, str], prices: CostEstimator, seconds: float) -> bool:
    """Whether all epochs of all tiers fit if one of them gets a better preset."""
    others = sum(prices.of(other, preset).most for other, preset in chosen.items() if other != tier)
    left = seconds - others
    return prices.floor(tier, better, chosen[tier]) <= left and prices.of(tier, better).most <= left


def shares(costs: Mapping[str, TrainingCost], seconds: float) -> dict[str, float]:
    """The seconds of each tier: what it needs for a first look at valid, and of the rest as its epochs go."""
    least = sum(cost.least for cost in costs.values())
    if least > seconds:  # the first tier alone, for as long as there is
        return {tier: seconds * cost.least / least for tier, cost in costs.items()}
    rest = sum(cost.most - cost.least for cost in costs.values())
    return {
        tier: cost.least + (seconds - least) * ((cost.most - cost.least) / rest if rest else 1 / len(costs))
        for tier, cost in costs.items()
    }
