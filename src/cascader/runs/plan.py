"""A request to fit a run, and the plan that answers it: what is trained and for how long.

The plan is made before anything long starts, and saved in the run's folder.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cascader.datasets import load_graph
from cascader.durations import format_duration, parse_duration
from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.model import Model
from cascader.models.registry import model_class, model_names
from cascader.models.settings import PRESETS, preset
from cascader.runs.folder import RunFolder
from cascader.runs.planner import Choice, MeasuredCosts, choose, split_budget
from cascader.storage import read_json, write_json

#: In order of cost.
_DEFAULT_TIERS = ("plausibility", "rules", "similarity", "kge", "dual", "late", "cross")
FORMAT = 2
_FILE = "plan.json"
#: The share of the training time that is handed out: the machine may later be slower than when it was measured.
HANDED_OUT = 0.9


@dataclass(frozen=True)
class FitRequest:
    """What a call of `fit` asks for."""

    kg: KnowledgeGraph
    kinds: Mapping[str, str]  # of model, by tier
    changes: Mapping[str, Mapping[str, Any]]  # to the settings of the presets, by tier
    preset: str | None
    budget: float  # seconds for everything; infinite: no budget
    time_limit: float  # seconds for each tier
    trials: int
    seed: int
    started: float  # by time.monotonic()
    only_beside: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by tier; others learn beside all before

    def model(self, tier: str, preset_name: str) -> Model:
        """Make a tier's untrained model for a preset."""
        return model_class(self.kinds[tier])(**self.settings(tier, preset_name))

    def settings(self, tier: str, preset_name: str) -> dict[str, Any]:
        """Return a tier's settings for a preset, with the requested changes."""
        kind = self.kinds[tier]
        seed = {"seed": self.seed} if "seed" in model_class(kind)().settings.as_dict() else {}
        return {**preset(kind, preset_name, self.kg.name), **seed, **self.changes.get(tier, {})}

    @property
    def has_budget(self) -> bool:
        """Whether the time for everything is limited."""
        return self.budget < math.inf

    def seconds_left(self) -> float:
        """Return how much of the budget is left."""
        return self.budget - (time.monotonic() - self.started)

    def is_searched(self, tier: str) -> bool:
        """Return whether a tier's settings are searched for: those of the first embedding, if there are trials."""
        return self.trials > 0 and tier == "kge"

    def beside(self, tier: str, tiers: Sequence[str]) -> list[str]:
        """Return the ones of all `tiers` that a tier is trained beside: those before it, or those it is limited to."""
        before = tiers[: tiers.index(tier)]
        return [name for name in before if name in self.only_beside.get(tier, before)]

    def as_dict(self) -> dict[str, Any]:
        """Return what makes two requests the same."""
        limits = {tier: list(names) for tier, names in self.only_beside.items()}
        return {
            **({"only_beside": limits} if limits else {}),
            "data_hash": self.kg.data_hash,
            "kinds": dict(self.kinds),
            "settings": {tier: self.settings(tier, self.preset or PRESETS[0]) for tier in self.kinds},
            "preset": self.preset,
            "budget": self.budget if self.has_budget else None,
            "trials": self.trials,
        }


def fit_request(
    graph: KnowledgeGraph | str | Path,
    *,
    budget: float | str | None = None,
    preset: str | None = None,
    tiers: str | Sequence[str] | None = None,
    model: str | Sequence[str] = "complex",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    time_limit: float | str | None = None,
    trials: int = 0,
    seed: int = 0,
) -> FitRequest:
    """Check what is asked for, so that errors show before anything trains."""
    started = time.monotonic()
    if budget is not None and time_limit is not None:
        raise SettingsError(
            "a budget is shared by all tiers, while a time limit applies to each of them. Give only one of the two."
        )
    kg = graph if isinstance(graph, KnowledgeGraph) else load_graph(graph)
    kinds = tier_kinds(tiers, model, kg)
    if trials and "kge" not in kinds:
        raise SettingsError(f"trials search for the settings of an embedding, but the tiers are: {', '.join(kinds)}.")
    changes = dict(settings or {})
    for tier in changes:
        if tier not in kinds:
            raise SettingsError(f"there are settings for the tier {tier!r}, but the tiers are: {', '.join(kinds)}.")
    request = FitRequest(
        kg, kinds, changes, preset, parse_duration(budget), parse_duration(time_limit), trials, seed, started
    )
    models = [request.model(tier, preset or "quick") for tier in kinds]
    if any(each.needs_texts for each in models):
        from cascader.models.text.text_model import check_texts

        check_texts(kg)
    return request


def tier_kinds(tiers: str | Sequence[str] | None, model: str | Sequence[str], kg: KnowledgeGraph) -> dict[str, str]:
    """Map each tier to its kind, in order: {"rules": "rules", "kge": "complex", "dual": "dual"}.

    Tiers that learn from structure come first, then those that read texts, then those that read pairs.
    """
    kinds = [
        kind for name in _names(tiers) or _default_tiers(kg) for kind in (_names(model) if name == "kge" else [name])
    ]
    unknown = [kind for kind in kinds if kind not in model_names()]
    if unknown:
        raise SettingsError(f"there is no tier or model {unknown[0]!r}. Choose from: kge, {', '.join(model_names())}.")
    found: dict[str, str] = {}
    for kind in sorted(kinds, key=lambda kind: (model_class(kind).reads_pairs, model_class(kind).needs_texts)):
        found[_free_name(model_class(kind).tier, found)] = kind
    if model_class(next(iter(found.values()))).reads_pairs:
        raise SettingsError(
            f"{', '.join(found)} only reads candidates that another tier proposes. Add kge to the tiers."
        )
    return found


def _names(text: str | Sequence[str] | None) -> list[str]:
    names = text.split(",") if isinstance(text, str) else list(text or ())
    return [name.strip() for name in names if name.strip()]


def _default_tiers(kg: KnowledgeGraph) -> tuple[str, ...]:
    from cascader.models.text.text_model import has_texts

    if has_texts(kg):
        return _DEFAULT_TIERS
    return tuple(tier for tier in _DEFAULT_TIERS if tier == "kge" or not model_class(tier).needs_texts)


def _free_name(name: str, taken: Mapping[str, str]) -> str:
    """Number a name if it is taken: kge, kge2, kge3 and so on."""
    number = 1
    while (candidate := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return candidate


@dataclass(frozen=True)
class PlannedTier:
    """How a tier is trained, and how long that is estimated to take at most."""

    preset: str
    parameters: int | None = None  # None: not measured
    seconds: float | None = None  # estimated, for all epochs; None: not measured
    epoch_seconds: float | None = None  # estimated, for one epoch
    share: float | None = None  # of the budget, in seconds; None: there is no budget
    actual_seconds: float | None = None  # None until it is trained, 0 if it was trained before the plan was made

    @property
    def limit(self) -> float:
        """The estimated seconds, but no more than its share."""
        return min(self.seconds or 0.0, math.inf if self.share is None else self.share)


@dataclass(frozen=True)
class FitPlan:
    """The whole plan; `request` is what the call asked for, so that only the same call resumes it."""

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
        """The estimated seconds for everything, at most; no tier trains longer than its share."""
        return (self.tuning_seconds or 0.0) + sum(tier.limit for tier in self.tiers.values())

    @property
    def actual_seconds(self) -> float | None:
        """The seconds that everything took; None until it is done."""
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
        split_budget(chosen, HANDED_OUT * max(request.seconds_left() - tuning, 0.0)) if request.has_budget else {}
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
            f"the tier {tier} of {folder.path} is already trained as {found.name}, not {wanted.name}. Choose another "
            "folder."
        )
    settings, requested = found.settings.as_dict(), wanted.settings.as_dict()
    for name in requested:
        if settings.get(name) != requested[name]:
            raise SettingsError(
                f"the tier {tier} of {folder.path} is already trained with {name} {settings.get(name)!r}, not "
                f"{requested[name]!r}. Choose another folder."
            )


def save_plan(plan: FitPlan, folder: Path) -> None:
    """Write `plan.json` into a run's folder."""
    write_json(folder / _FILE, {"format": FORMAT, **asdict(plan)})


def load_plan(folder: Path, request: Mapping[str, Any]) -> FitPlan | None:
    """Load the plan that an earlier call with the same request made; None if there is none."""
    if not (folder / _FILE).exists():
        return None
    saved = read_json(folder / _FILE)
    if saved.pop("format", None) != FORMAT or saved.get("request") != request:
        return None
    try:
        tiers = {name: PlannedTier(**tier) for name, tier in saved.pop("tiers").items()}
        return FitPlan(tiers=tiers, **saved)
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{folder / _FILE} is not a plan: {error}. Delete it to make a new one.") from error
