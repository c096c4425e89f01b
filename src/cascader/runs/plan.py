"""What will be trained, and for how long: made before anything long starts, and kept in the run's folder."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cascader.durations import format_duration
from cascader.errors import DataError, SettingsError
from cascader.models.model import Model
from cascader.models.presets import PRESETS
from cascader.runs.folder import RunFolder
from cascader.runs.planner import Choice, MeasuredCosts, choose, split_budget
from cascader.runs.request import FitRequest
from cascader.storage import read_json, write_json

FORMAT = 2
_FILE = "plan.json"
#: Of the time for training, this share is handed out: the machine may be slower later than while it was measured.
_HANDED_OUT = 0.9


@dataclass(frozen=True)
class PlannedTier:
    """A tier of the plan: how it is trained, and what that is estimated to take at most."""

    preset: str
    parameters: int | None = None  # None: not measured
    seconds: float | None = None  # estimated, for all epochs; None: not measured
    epoch_seconds: float | None = None  # estimated, for one
    share: float | None = None  # of the budget, in seconds; None: there is no budget
    actual_seconds: float | None = None  # None until it is trained, 0 if it was trained before the plan

    @property
    def limit(self) -> float:
        """The estimated seconds, but no more than its share."""
        return min(self.seconds or 0.0, math.inf if self.share is None else self.share)


@dataclass(frozen=True)
class FitPlan:
    """All of it; `request` is what the call asked for, so that only the same call resumes it."""

    request: Mapping[str, Any]
    tiers: Mapping[str, PlannedTier]
    tuning_seconds: float | None = None  # estimated, with the calibration; None: not measured
    budget: float | None = None  # seconds
    skipped: Mapping[str, str] = field(default_factory=dict)  # why, by tier
    actual_tuning_seconds: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the times were estimated."""
        return self.tuning_seconds is not None

    @property
    def seconds(self) -> float:
        """What everything is estimated to take at most; no tier trains for longer than its share."""
        return (self.tuning_seconds or 0.0) + sum(tier.limit for tier in self.tiers.values())

    @property
    def actual_seconds(self) -> float | None:
        """What everything took, once it is done."""
        parts = [*(tier.actual_seconds for tier in self.tiers.values()), self.actual_tuning_seconds]
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def presets(self) -> str:
        """The preset of all tiers, or that of each."""
        names = {tier.preset for tier in self.tiers.values()}
        if len(names) == 1:
            return names.pop()
        return ", ".join(f"{name} {tier.preset}" for name, tier in self.tiers.items())

    def limit(self, name: str) -> float:
        """The seconds a tier has: its share, and what those before it have left of theirs."""
        limit = 0.0
        for tier, planned in self.tiers.items():
            if planned.share is None:
                return math.inf
            limit += planned.share
            if tier == name:
                return max(limit, 0.0)
            limit -= planned.actual_seconds or 0.0
        raise KeyError(name)

    def with_actual(self, name: str, seconds: float) -> "FitPlan":
        """The plan with what a tier really took."""
        tiers = {**self.tiers, name: replace(self.tiers[name], actual_seconds=round(seconds, 3))}
        return replace(self, tiers=tiers)


def make_plan(request: FitRequest, folder: RunFolder, *, measure: bool) -> FitPlan:
    """Choose tiers and presets; with `measure`, from a moment of each training, so that they fit the budget."""
    presets = [request.preset] if request.preset else list(PRESETS if request.has_budget else PRESETS[:1])
    trained = {tier: _trained(folder, tier, request, presets) for tier in request.kinds if folder.has_tier(tier)}
    if not measure:
        planned = {
            tier: PlannedTier(presets[0], actual_seconds=0.0 if tier in trained else None) for tier in request.kinds
        }
        return FitPlan(request.as_dict(), planned)
    costs = MeasuredCosts(request.kg, request.model, max(request.trials, 1), dict(trained))
    untrained = [tier for tier in request.kinds if tier not in trained]
    choice = choose(untrained, presets, costs, request.seconds_left(), list(trained))
    chosen = {tier: costs.of(tier, name) for tier, name in choice.presets.items()}
    tuning = costs.tuning([*trained, *chosen])
    share_of = (
        split_budget(chosen, _HANDED_OUT * max(request.seconds_left() - tuning, 0.0)) if request.has_budget else {}
    )
    planned = {
        tier: PlannedTier(presets[0], model.parameter_count, 0.0, 0.0, 0.0 if request.has_budget else None, 0.0)
        for tier, model in trained.items()
    }
    for tier, cost in chosen.items():
        most = min(cost.most, request.time_limit)
        planned[tier] = PlannedTier(choice.presets[tier], cost.parameters, most, cost.epoch, share_of.get(tier))
    return FitPlan(
        request=request.as_dict(),
        tiers={tier: planned[tier] for tier in request.kinds if tier in planned},
        tuning_seconds=tuning,
        budget=request.budget if request.has_budget else None,
        skipped=_why_skipped(choice, untrained),
    )


def _why_skipped(choice: Choice, tiers: Sequence[str]) -> dict[str, str]:
    why = {
        tier: f"with it, {format_duration(needed)} would pass before every tier is validated once and all are tuned"
        for tier, needed in choice.skipped.items()
    }
    behind = {tier: "it comes after a tier that is skipped" for tier in tiers if tier not in choice.presets}
    return {**behind, **why}


def _trained(folder: RunFolder, tier: str, request: FitRequest, presets: Sequence[str]) -> Model:
    """The model of a tier that is trained already; an error if its settings are none of those asked for."""
    model = folder.load_tier(tier, request.kg)
    wanted = [request.model(tier, name) for name in presets]
    if not request.is_searched(tier) and all(each.settings != model.settings for each in wanted):
        check_same(folder, tier, model, wanted[0])
    return model


def check_same(folder: RunFolder, tier: str, found: Model, wanted: Model) -> None:
    """A tier that is there already must be the one that is asked for."""
    if found.name != wanted.name:
        raise SettingsError(
            f"the tier {tier} of {folder.path} is finished, and is a {found.name}, not a {wanted.name}. Choose another "
            "folder."
        )
    settings, asked = found.settings.as_dict(), wanted.settings.as_dict()
    for name in asked:
        if settings.get(name) != asked[name]:
            raise SettingsError(
                f"the tier {tier} of {folder.path} is finished, with {name} {settings.get(name)!r} and not "
                f"{asked[name]!r}. Choose another folder."
            )


def save_plan(plan: FitPlan, folder: Path) -> None:
    """Write `plan.json` into a run's folder."""
    write_json(folder / _FILE, {"format": FORMAT, **asdict(plan)})


def load_plan(folder: Path, request: Mapping[str, Any]) -> FitPlan | None:
    """The plan that the same request has made before, or None."""
    if not (folder / _FILE).exists():
        return None
    saved = read_json(folder / _FILE)
    if saved.pop("format", None) != FORMAT or saved.get("request") != request:
        return None
    try:
        tiers = {name: PlannedTier(**tier) for name, tier in saved.pop("tiers").items()}
        return FitPlan(tiers=tiers, **saved)
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{folder / _FILE} is not a plan: {error}. Delete it, and a new one is made.") from error
