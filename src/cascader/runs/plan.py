"""The plan that answers a request to fit a run: what is trained and for how long.

It is made before anything long starts, and saved in the run's folder.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Len

from cascader.display import emit
from cascader.durations import format_duration
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.model import Model
from cascader.models.registry import model_class
from cascader.models.settings import PRESETS
from cascader.models.training import TrainingCost
from cascader.records import Count, Seconds, TierName, conforming, read_record, write_record
from cascader.runs.folder import RunFolder
from cascader.runs.planner import Choice, MeasuredCosts, choose, split_budget
from cascader.runs.request import FitRequest
from cascader.storage import read_json
from cascader.wording import counted

FORMAT = 4
_FILE = "plan.json"
_ADVICE = "Delete it to make a new one."
#: The share of its epochs after which a training likely stops, by kind of model, in presets that train for long. In
#: results/, those that no time limit ended took 37 to 56 % with embeddings, 46 to 52 % with dual encoders, 35 to 75 %
#: with context encoders, and 11 to 15 % with models that match tokens or read pairs; the quick ones took all.
_LIKELY_EPOCHS = {"late": 0.25, "pooled": 0.25, "cross": 0.25}
_LIKELY_OTHERWISE = 0.5
#: The share of the training time that is handed out: the machine may later be slower than when it was measured.
HANDED_OUT = 0.9


@dataclass(frozen=True)
class PlannedTier:
    """How a tier is trained, and how long that is estimated to take at most."""

    preset: str
    parameters: Count | None = None  # None: not measured
    seconds: Seconds | None = None  # estimated, for all epochs; None: not measured
    epoch_seconds: Seconds | None = None  # estimated, for one epoch
    share: Seconds | None = None  # of the budget, in seconds; None: there is no budget
    actual_seconds: Seconds | None = None  # None until it is trained, 0 if it was trained before the plan was made
    least_seconds: Seconds | None = None  # estimated, until the first validation; None: not measured
    seconds_before: Seconds | None = None  # spent on it before the plan was made; None: it does not go on from there
    likely_seconds: Seconds | None = None  # estimated, until valid no longer improves; None: not measured

    @property
    def limit(self) -> float:
        """The estimated seconds, but no more than its share."""
        return min(self.seconds or 0.0, math.inf if self.share is None else self.share)

    @property
    def likely(self) -> float:
        """The likely seconds, but no more than its share."""
        return min(self.likely_seconds or 0.0, self.limit)


@dataclass(frozen=True)
class FitPlan:
    """The whole plan; `request` is what the call asked for, so that only the same call resumes it."""

    request: Mapping[str, Any]
    tiers: Annotated[Mapping[TierName, PlannedTier], Len(min_length=1)]
    tuning_seconds: Seconds | None = None  # estimated, with the calibration; None: not measured
    budget: Seconds | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)  # why, by tier
    actual_tuning_seconds: Seconds | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the times were estimated."""
        return self.tuning_seconds is not None

    @property
    def seconds(self) -> float:
        """The estimated seconds for everything, at most; no tier trains longer than its share."""
        return (self.tuning_seconds or 0.0) + sum(tier.limit for tier in self.tiers.values())

    @property
    def likely(self) -> float:
        """The seconds that everything will likely take."""
        return (self.tuning_seconds or 0.0) + sum(tier.likely for tier in self.tiers.values())

    @property
    def actual_seconds(self) -> float | None:
        """The seconds that training, tuning and calibration took; None until it is done."""
        parts = [*(tier.actual_seconds for tier in self.tiers.values()), self.actual_tuning_seconds]
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def presets(self) -> str:
        """The preset of all tiers, or of each tier if they differ."""
        names = {tier.preset for tier in self.tiers.values()}
        if len(names) == 1:
            return names.pop()
        return ", ".join(f"{name} {tier.preset}" for name, tier in self.tiers.items())

    def limit(self, name: str) -> float:
        """Return the seconds a tier may take: its share, and what earlier tiers have left of theirs."""
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
        """Return the plan with the seconds that a tier took."""
        tiers = {**self.tiers, name: replace(self.tiers[name], actual_seconds=round(seconds, 3))}
        return replace(self, tiers=tiers)


def make_plan(request: FitRequest, folder: RunFolder, *, measure: bool) -> FitPlan:
    """Choose tiers and presets; with `measure`, from a brief training of each, so that they fit the budget."""
    presets = [request.preset] if request.preset else list(PRESETS if request.has_budget else PRESETS[:1])
    trained = {tier: _trained(folder, tier, request, presets) for tier in request.kinds if folder.has_tier(tier)}
    going_on = _going_on(trained, request, folder)
    for tier in request.stale(going_on):
        trained.pop(tier, None)
    if not measure:
        planned = {
            tier: PlannedTier(presets[0], actual_seconds=0.0 if tier in trained else None) for tier in request.kinds
        }
        return FitPlan(request.as_dict(), planned)
    costs = MeasuredCosts(request.kg, request.model, max(request.trials, 1), dict(trained))
    untrained = [tier for tier in request.kinds if tier not in trained]
    rest = {tier: _rest_of(model) for tier, model in going_on.items()}
    left = request.seconds_left() - sum(cost.least for cost in rest.values())
    choice = choose(untrained, presets, costs, left, list(trained))
    chosen = {tier: costs.of(tier, name) for tier, name in choice.presets.items()}
    tuning = costs.tuning([*trained, *chosen])
    share_of = (
        split_budget({**rest, **chosen}, HANDED_OUT * max(request.seconds_left() - tuning, 0.0))
        if request.has_budget
        else {}
    )
    planned = {
        tier: PlannedTier(presets[0], model.parameter_count, 0.0, 0.0, 0.0 if request.has_budget else None, 0.0)
        for tier, model in trained.items()
    }
    for tier, cost in rest.items():
        planned[tier] = replace(
            _planned(cost, _preset_of(going_on[tier], tier, request), request.kinds[tier], request, share_of.get(tier)),
            seconds_before=going_on[tier].history_.spent,
        )
    for tier, cost in chosen.items():
        planned[tier] = _planned(cost, choice.presets[tier], request.kinds[tier], request, share_of.get(tier))
    return FitPlan(
        request=request.as_dict(),
        tiers={tier: planned[tier] for tier in request.kinds if tier in planned},
        tuning_seconds=tuning,
        budget=request.budget if request.has_budget else None,
        skipped=_why_skipped(choice, untrained),
    )


def _planned(cost: TrainingCost, preset_name: str, kind: str, request: FitRequest, share: float | None) -> PlannedTier:
    most = min(cost.most, request.time_limit)
    likely = min(likely_seconds(cost, preset_name, kind), most)
    return PlannedTier(
        preset_name, cost.parameters, most, cost.epoch, share, least_seconds=cost.least, likely_seconds=likely
    )


def likely_seconds(cost: TrainingCost, preset_name: str, kind: str) -> float:
    """The seconds until valid likely no longer improves."""
    share = 1.0 if preset_name == PRESETS[0] else _LIKELY_EPOCHS.get(kind, _LIKELY_OTHERWISE)
    return cost.seconds(math.ceil(share * cost.epochs))


@dataclass(frozen=True)
class _EarlierPlan:
    """All that is read of the plan of another request, whatever wrote it."""

    budget: Seconds | None = None


def _going_on(trained: Mapping[str, Model], request: FitRequest, folder: RunFolder) -> dict[str, Model]:
    """The tiers that an earlier, smaller budget has cut short."""
    path = folder.path / _FILE
    before = conforming(read_json(path), _EarlierPlan, path, _ADVICE).budget if path.exists() else None
    if before is None or not request.has_budget or request.budget <= before:
        return {}
    return {
        tier: model
        for tier, model in trained.items()
        if folder.can_go_on(tier, model) and not request.is_searched(tier)
    }


def _rest_of(model: Model) -> TrainingCost:
    """What a tier that goes on may still cost, judging by what it took so far."""
    history, settings = model.history_, model.settings.as_dict()
    epochs = history.epochs + (history.partial is not None)
    return TrainingCost(
        preparing=history.preparing_seconds,
        epoch=history.seconds / max(epochs, 1),
        look=0.0,
        epochs=max(settings.get("epochs", settings.get("rounds", 1)) - history.epochs, 1),
        valid_every=1,
        parameters=model.parameter_count,
    )


def _preset_of(model: Model, tier: str, request: FitRequest) -> str:
    """The preset that a tier was trained with."""
    names = [request.preset] if request.preset else list(PRESETS)
    return next((name for name in names if request.model(tier, name).settings == model.settings), names[0])


def _why_skipped(choice: Choice, tiers: Sequence[str]) -> dict[str, str]:
    why = {
        tier: f"with it, validating every tier once and tuning them would take {format_duration(needed)}"
        for tier, needed in choice.skipped.items()
    }
    behind = {tier: "it comes after a tier that is skipped" for tier in tiers if tier not in choice.presets}
    return {**behind, **why}


def _trained(folder: RunFolder, tier: str, request: FitRequest, presets: Sequence[str]) -> Model:
    """Load a tier that is already trained; an error if its settings are not among those requested."""
    model = folder.load_tier(tier, request.kg)
    wanted = [request.model(tier, name) for name in presets]
    if not request.is_searched(tier) and all(each.settings != model.settings for each in wanted):
        check_same(folder, tier, model, wanted[0])
    return model


def check_same(folder: RunFolder, tier: str, found: Model, wanted: Model) -> None:
    """Check that a trained tier is the one that is requested."""
    if found.name != wanted.name:
        raise SettingsError(
            f"the tier {tier} of {folder.address} is already trained as {found.name}, not {wanted.name}. Choose "
            "another folder."
        )
    settings, requested = found.settings.as_dict(), wanted.settings.as_dict()
    for name in requested:
        if settings.get(name) != requested[name]:
            raise SettingsError(
                f"the tier {tier} of {folder.address} is already trained with {name} {settings.get(name)!r}, not "
                f"{requested[name]!r}. Choose another folder."
            )


def save_plan(plan: FitPlan, folder: Path) -> None:
    """Write `plan.json` into a run's folder."""
    write_record(folder / _FILE, {"format": FORMAT, **asdict(plan)})


def load_plan(folder: Path, request: Mapping[str, Any]) -> FitPlan | None:
    """Load the plan that an earlier call with the same request made; None if there is none."""
    if not (folder / _FILE).exists():
        return None
    saved = read_json(folder / _FILE)
    if saved.get("format") != FORMAT or saved.get("request") != request:
        return None
    return read_record(folder / _FILE, FitPlan, FORMAT, _ADVICE)


# Messages.


def emit_plan(plan: FitPlan, request: FitRequest) -> None:
    """Report what will be trained, the estimated times, and what is skipped."""
    kg, within = request.kg, "" if plan.budget is None else f", within {format_duration(plan.budget)}"
    columns = ["tier", "model", "preset", *(["parameters", "likely", "at the latest"] if plan.is_measured else [])]
    rows = [
        [
            tier,
            request.kinds[tier],
            planned.preset,
            *([f"{planned.parameters:,}", *_times(planned)] if plan.is_measured else []),
        ]
        for tier, planned in plan.tiers.items()
    ]
    if plan.is_measured:
        tuning = format_duration(plan.tuning_seconds or 0)
        rows.append(["tuning and calibration", "", "", "", tuning, tuning])
        rows.append(["total", "", "", "", format_duration(plan.likely), format_duration(plan.seconds)])
    triples = f"{counted(len(kg.train), 'triple')} to train on, {counted(len(kg.entities), 'entity')}"
    emit("plan", f"The plan for {kg.name}{within}: {triples}.", columns, rows)
    for tier, why in plan.skipped.items():
        emit("skipped", f"Skipped: {tier}; {why}.")
    if not any(model_class(kind).needs_texts for kind in request.kinds.values()) and not _has_texts(kg):
        emit("plan", "No language models: the graph has no texts for them to read.")
    _emit_too_small(plan, request)
    if plan.is_measured:
        emit("plan", "Estimated from a few steps of each training. Likely: it ends when valid no longer improves.")


def _has_texts(kg: KnowledgeGraph) -> bool:
    from cascader.models.text.text_model import has_texts

    return has_texts(kg)


def _times(planned: PlannedTier) -> list[str]:
    """How long a tier will likely take and at the latest, in words."""
    if not planned.seconds:
        return ["already trained", ""]
    cut = planned.share is not None and planned.seconds > planned.share
    latest = format_duration(planned.limit) + (f" of {format_duration(planned.seconds)}" if cut else "")
    return [format_duration(planned.likely), latest]


def _emit_too_small(plan: FitPlan, request: FitRequest) -> None:
    """Say before the training starts which tiers will be cut short before anything of them is validated."""
    option = "--budget" if request.has_budget else "--time-limit"
    for tier, planned in plan.tiers.items():
        limit = min(request.time_limit, math.inf if planned.share is None else planned.share)
        least, epoch = planned.least_seconds or 0.0, planned.epoch_seconds or 0.0
        if epoch > 0 and limit < least:  # a model without epochs has no weights to validate
            takes = f"one epoch takes about {format_duration(epoch)}, the first validation ends after"
            emit(
                "plan",
                f"Too short: {tier} has {format_duration(limit)}, but {takes} {format_duration(least)}. It stops in "
                f"time, with weights that were never validated. Give it a larger {option}, a smaller --preset, or "
                "fewer --tiers; with a larger one, the same command later goes on.",
            )
        elif len(plan.tiers) == 1 and planned.share is not None and (planned.seconds or 0.0) > limit:
            emit("plan", f"The budget is too small for all epochs of {tier}: it trains for as long as there is time.")


def emit_actual(plan: FitPlan, seconds: float) -> None:
    """Report how long everything took, `seconds` in all, and what that was spent on."""
    if plan.actual_seconds is None:
        return
    parts = {tier: each.actual_seconds or 0.0 for tier, each in plan.tiers.items()}
    parts["tuning and calibration"] = plan.actual_tuning_seconds or 0.0
    parts["loading and planning"] = seconds - sum(parts.values())
    # Rounded down, and without those below a second: rounded up like the whole, they would add up to more than it.
    spent = ", ".join(f"{name} {format_duration(int(took))}" for name, took in parts.items() if took >= 1)
    foretold = f"{format_duration(plan.likely)} was likely, {format_duration(plan.seconds)} the latest"
    estimate = f"; {foretold}" if plan.is_measured else ""
    emit(
        "finished",
        f"Took {format_duration(seconds)}{f': {spent}' if spent else ''}{estimate}.",
        values={"seconds": round(seconds, 3)},
    )
