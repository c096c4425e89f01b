"""The plan of a fit: made or found again, printed before anything long starts, and compared with what it took."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascader.cli.console import say, say_table
from cascader.cli.tiers import check_same, model_of
from cascader.graph import KnowledgeGraph

if TYPE_CHECKING:
    from cascader.runs import Choice, FitPlan, PlannedTier

#: Of the time for training, this much is shared out: the machine may be slower later than while it was measured.
_SHARED_OUT = 0.9
_COLUMNS = ("tier", "model", "preset", "parameters", "predicted, at most")


@dataclass(frozen=True)
class FitRequest:
    """What a command asks for."""

    kg: KnowledgeGraph
    kinds: dict[str, str]  # by tier
    settings_of: Callable[[str, str], dict[str, Any]]  # of a tier under a preset
    preset: str | None
    budget: float | None  # seconds
    trials: int
    most_seconds: float  # of each tier
    started: float  # by time.monotonic()

    def seconds_left(self) -> float:
        """What is left of the budget now."""
        return math.inf if self.budget is None else self.budget - (time.monotonic() - self.started)

    def is_searched(self, tier: str) -> bool:
        """Whether the settings of a tier are searched for."""
        return tier == "kge" and self.trials > 0

    def as_dict(self) -> dict[str, Any]:
        """What makes two commands the same."""
        return {
            "data_hash": self.kg.data_hash,
            "kinds": self.kinds,
            "settings": {tier: self.settings_of(tier, self.preset or "quick") for tier in self.kinds},
            "preset": self.preset,
            "budget": self.budget,
            "trials": self.trials,
        }


def make_plan(wish: FitRequest, folder: Path) -> "FitPlan":
    """Measure a moment of each training, and choose what fits."""
    from cascader.runs import PRESETS, FitPlan, MeasuredCosts, PlannedTier, choose, has_tier, shares

    presets = [wish.preset] if wish.preset else list(PRESETS if wish.budget else PRESETS[:1])
    trained = {tier: _trained(folder, tier, wish, presets) for tier in wish.kinds if has_tier(folder, tier)}
    prices = MeasuredCosts(wish.kg, wish.kinds, wish.settings_of, max(wish.trials, 1))
    for tier, (_, model) in trained.items():
        prices.take(tier, model)
    untrained = [tier for tier in wish.kinds if tier not in trained]
    choice = choose(untrained, presets, prices, wish.seconds_left(), list(trained))
    costs = {tier: prices.of(tier, preset) for tier, preset in choice.presets.items()}
    tuning = prices.tuning([*trained, *costs])
    share_of = {} if wish.budget is None else shares(costs, _SHARED_OUT * max(wish.seconds_left() - tuning, 0.0))
    planned = {tier: _already(preset, model, wish) for tier, (preset, model) in trained.items()}
    for tier, cost in costs.items():
        most = min(cost.most, wish.most_seconds)
        planned[tier] = PlannedTier(choice.presets[tier], cost.parameters, most, cost.epoch, share_of.get(tier))
    return FitPlan(
        asked=wish.as_dict(),
        tiers={tier: planned[tier] for tier in wish.kinds if tier in planned},
        tuning_seconds=tuning,
        budget=wish.budget,
        left_out=_why_left_out(choice, untrained),
    )


def _already(preset: str, model: Any, wish: FitRequest) -> "PlannedTier":  # noqa: ANN401 - any tier's model
    """A tier that needs no time, because it is trained."""
    from cascader.runs import PlannedTier

    return PlannedTier(preset, model.parameter_count, 0.0, 0.0, None if wish.budget is None else 0.0, took=0.0)


def _why_left_out(choice: "Choice", tiers: Sequence[str]) -> dict[str, str]:
    from cascader.runs import format_duration

    why = {
        tier: f"with it, {format_duration(needed)} would pass before every tier has had a look at valid "
        "and all are tuned"
        for tier, needed in choice.left_out.items()
    }
    behind = {tier: "it comes behind a tier that is left out" for tier in tiers if tier not in choice.presets}
    return {**behind, **why}


def _trained(folder: Path, tier: str, wish: FitRequest, presets: Sequence[str]) -> tuple[str, Any]:
    """The preset that a tier was trained with, and its model; an error if that is none of those asked for."""
    from cascader.runs import load_tier

    model = load_tier(folder, tier, wish.kg)
    if wish.is_searched(tier):  # what a search has found may be any
        return presets[0], model
    for preset in presets:
        if model_of(wish.kinds[tier], wish.settings_of(tier, preset)).settings == model.settings:
            return preset, model
    check_same(folder, tier, model, model_of(wish.kinds[tier], wish.settings_of(tier, presets[0])))
    raise AssertionError("settings that differ have a setting that differs")


def say_plan(plan: "FitPlan", wish: FitRequest, has_texts: bool) -> None:
    """Print what will be trained, what it is predicted to take, and what is left out."""
    from cascader.runs import format_duration

    kg, within = wish.kg, "" if plan.budget is None else f", within {format_duration(plan.budget)}"
    say(f"The plan for {kg.name}{within}: {len(kg.train):,} triples to train on, {len(kg.entities):,} entities.")
    rows = [
        [tier, wish.kinds[tier], planned.preset, f"{planned.parameters:,}", _predicted(planned.seconds, planned.share)]
        for tier, planned in plan.tiers.items()
    ]
    rows.append(["tuning and calibration", "", "", "", format_duration(plan.tuning_seconds)])
    rows.append(["in all", "", "", "", format_duration(plan.seconds)])
    say_table(_COLUMNS, rows, numbers=_COLUMNS[3:])
    for tier, why in plan.left_out.items():
        say(f"Left out: {tier}; {why}.")
    if not has_texts:
        say("Only embeddings: the graph has no texts for a language model to read.")
    _say_too_small(plan)
    say("Foretold from a moment of each training; one that no longer gains on valid ends sooner.")


def _predicted(seconds: float, share: float | None) -> str:
    from cascader.runs import format_duration

    if seconds == 0:
        return "trained already"
    if share is None or seconds <= share:
        return format_duration(seconds)
    return f"{format_duration(share)} of {format_duration(seconds)}"


def _say_too_small(plan: "FitPlan") -> None:
    from cascader.runs import format_duration

    (tier, planned), *others = plan.tiers.items()
    if others or planned.share is None or planned.seconds <= planned.share:
        return
    if planned.epoch_seconds > planned.share:
        epoch = format_duration(planned.epoch_seconds)
        say(f"The budget is shorter than one epoch of {tier}, {epoch}: it trains that one.")
    else:
        say(f"The budget is too small for all epochs of {tier}: it trains for as long as there is.")


def say_took(plan: "FitPlan") -> None:
    """Print what each part took beside what was predicted."""
    from cascader.runs import format_duration

    if plan.took is None:
        return
    parts = ", ".join(f"{tier} {format_duration(planned.took or 0)}" for tier, planned in plan.tiers.items())
    tuning = format_duration(plan.tuning_took or 0)
    say(
        f"Took {format_duration(plan.took)}, of which {parts}, tuning and calibration {tuning}; "
        f"at most {format_duration(plan.seconds)} were predicted."
    )


def plan_for(wish: FitRequest, folder: Path) -> "tuple[FitPlan, bool]":
    """The plan that the same command has kept in the folder, or a new one; and whether it is new."""
    from cascader.runs import load_plan

    found = load_plan(folder, wish.as_dict())
    return (found, False) if found else (make_plan(wish, folder), True)
