"""What a call of `fit` asks for, checked before anything trains."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cascader.datasets import load_graph
from cascader.durations import parse_duration
from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph, KnownAnswers
from cascader.models.model import Model
from cascader.models.registry import model_class, model_names
from cascader.models.settings import PRESETS, preset
from cascader.runs.decisions import Decisions, indices_of, read_decisions
from cascader.runs.folder import RunFolder
from cascader.scoring import RejectingScorer, Scorer

#: In order of cost.
_DEFAULT_TIERS = ("plausibility", "rules", "similarity", "kge", "dual", "late", "cross")


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
    decisions: Decisions | None = None  # of the run that is updated; its accepted links are in the graph's train

    def model(self, tier: str, preset_name: str) -> Model:
        """Make a tier's untrained model for a preset."""
        return model_class(self.kinds[tier])(**self.settings(tier, preset_name))

    def settings(self, tier: str, preset_name: str) -> dict[str, Any]:
        """Return a tier's settings for a preset, with the requested changes."""
        kind = self.kinds[tier]
        seed = {"seed": self.seed} if "seed" in model_class(kind)().settings.as_dict() else {}
        return {**preset(kind, preset_name, self.kg.name, len(self.kg.entities)), **seed, **self.changes.get(tier, {})}

    @property
    def has_budget(self) -> bool:
        """Whether the time for everything is limited."""
        return self.budget < math.inf

    @property
    def is_limited(self) -> bool:
        """Whether the time for everything or for each tier is limited."""
        return self.has_budget or self.time_limit < math.inf

    def seconds_spent(self) -> float:
        """Return how long ago it was made: what a clock on the wall says."""
        return time.monotonic() - self.started

    def seconds_left(self) -> float:
        """Return how much of the budget is left."""
        return self.budget - self.seconds_spent()

    def is_searched(self, tier: str) -> bool:
        """Return whether a tier's settings are searched for: those of the first embedding, if there are trials."""
        return self.trials > 0 and tier == "kge"

    def beside(self, tier: str, tiers: Sequence[str]) -> list[str]:
        """Return the ones of all `tiers` that a tier is trained beside: those before it, or those it is limited to."""
        before = tiers[: tiers.index(tier)]
        return [name for name in before if name in self.only_beside.get(tier, before)]

    def stale(self, going_on: Collection[str]) -> list[str]:
        """Return the tiers that have learned beside tiers which go on, and must therefore be trained again."""
        tiers, changed = list(self.kinds), set(going_on)
        for tier in tiers:
            if model_class(self.kinds[tier]).needs_texts and changed.intersection(self.beside(tier, tiers)):
                changed.add(tier)
        return [tier for tier in tiers if tier in changed and tier not in going_on]

    def rejecting(self, earlier: Scorer) -> Scorer:
        """Let earlier tiers name the links that people have rejected as the hardest negatives."""
        rejected = [] if self.decisions is None else [each.triple for each in self.decisions.rejected]
        if not rejected:
            return earlier
        kg = self.kg
        return RejectingScorer(earlier, KnownAnswers(indices_of(rejected, kg), len(kg.entities), len(kg.relations)))

    def as_dict(self) -> dict[str, Any]:
        """Return what makes two requests the same."""
        limits = {tier: list(names) for tier, names in self.only_beside.items()}
        rejected = [] if self.decisions is None else [list(each.triple) for each in self.decisions.rejected]
        return {
            **({"only_beside": limits} if limits else {}),
            **({"rejected": rejected} if rejected else {}),
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
    update: str | Path | None = None,
    started: float | None = None,
) -> FitRequest:
    """Check what is asked for, so that errors show before anything trains.

    `update` is the run whose decisions are to be learned from. `started`, by time.monotonic(), is when the clock began
    to run, if that was before this call.
    """
    started = time.monotonic() if started is None else started
    if budget is not None and time_limit is not None:
        raise SettingsError(
            "a budget is shared by all tiers, while a time limit applies to each of them. Give only one of the two."
        )
    if trials < 0:
        raise SettingsError(f"{trials} trials were asked for, expected 0 for none, or more.")
    kg = graph if isinstance(graph, KnowledgeGraph) else load_graph(graph)
    decisions = None if update is None else read_decisions(RunFolder(update).path, kg)
    kg = kg if decisions is None else decisions.with_accepted(kg)
    kinds = tier_kinds(tiers, model, kg)
    if trials and "kge" not in kinds:
        raise SettingsError(f"trials search for the settings of an embedding, but the tiers are: {', '.join(kinds)}.")
    changes = dict(settings or {})
    for tier in changes:
        if tier not in kinds:
            raise SettingsError(f"there are settings for the tier {tier!r}, but the tiers are: {', '.join(kinds)}.")
    request = FitRequest(
        kg,
        kinds,
        changes,
        preset,
        parse_duration(budget),
        parse_duration(time_limit),
        trials,
        seed,
        started,
        decisions=decisions,
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
