"""What will be trained, and for how long: made before anything long starts, and kept in the run's folder."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cascader.errors import DataError
from cascader.storage import read_json, write_json

FORMAT = 1
_FILE = "plan.json"


@dataclass(frozen=True)
class PlannedTier:
    """A tier of the plan: how it is trained, and what that is predicted to take at most."""

    preset: str
    parameters: int
    seconds: float  # predicted, for all epochs
    epoch_seconds: float  # predicted, for one
    share: float | None  # of the budget, in seconds; None where there is none
    took: float | None = None  # seconds; None until it is trained, 0 if it was trained before the plan


@dataclass(frozen=True)
class FitPlan:
    """All of it; `asked` is what the command asked for, so that only the same command goes on with it."""

    asked: Mapping[str, Any]
    tiers: Mapping[str, PlannedTier]
    tuning_seconds: float  # predicted, the calibration included
    budget: float | None  # seconds
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by tier
    tuning_took: float | None = None

    @property
    def seconds(self) -> float:
        """What all is predicted to take at most; no tier trains for longer than its share."""
        return self.tuning_seconds + sum(
            tier.seconds if tier.share is None else min(tier.seconds, tier.share) for tier in self.tiers.values()
        )

    @property
    def took(self) -> float | None:
        """What all took, once all is done."""
        parts = [*(tier.took for tier in self.tiers.values()), self.tuning_took]
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def presets(self) -> str:
        """The preset of all tiers, or that of each."""
        names = {tier.preset for tier in self.tiers.values()}
        if len(names) == 1:
            return names.pop()
        return ", ".join(f"{name} {tier.preset}" for name, tier in self.tiers.items())

    def limit(self, name: str) -> float | None:
        """The seconds a tier has: its share, and what those before it have left of theirs; None: all it wants."""
        limit = 0.0
        for tier, planned in self.tiers.items():
            if planned.share is None:
                return None
            limit += planned.share
            if tier == name:
                return max(limit, 0.0)
            limit -= planned.took or 0.0
        raise KeyError(name)

    def with_took(self, name: str, seconds: float) -> "FitPlan":
        """The plan with what a tier really took."""
        return replace(self, tiers={**self.tiers, name: replace(self.tiers[name], took=round(seconds, 3))})


def save_plan(plan: FitPlan, folder: Path) -> None:
    """Write `plan.json` into a run's folder."""
    write_json(folder / _FILE, {"format": FORMAT, **asdict(plan)})


def load_plan(folder: Path, asked: Mapping[str, Any]) -> FitPlan | None:
    """The plan that the same command has made before, or None."""
    if not (folder / _FILE).exists():
        return None
    saved = read_json(folder / _FILE)
    if saved.pop("format", None) != FORMAT or saved.get("asked") != asked:
        return None
    try:
        tiers = {name: PlannedTier(**tier) for name, tier in saved.pop("tiers").items()}
        return FitPlan(tiers=tiers, **saved)
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{folder / _FILE} is not a plan: {error}. Delete it, and one is made anew.") from error
