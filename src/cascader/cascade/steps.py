"""What each tier did, what it cost and how long it had: traces, costs and figures read it, and rerun no model."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import Candidates, FloatArray


@dataclass(frozen=True, eq=False)
class Step:
    """What a tier did to a block of queries."""

    tier: str
    blended: FloatArray  # (queries, entities) the scores after it
    scores: FloatArray | None  # the tier's own, (queries, entities) or (candidates,); None: it had no time
    candidates: Candidates | None  # whom it was asked about; None: everyone
    alpha: FloatArray  # (queries,) the weight of the tiers before it
    calls: int  # scores it had to give
    seconds: float
    complete: bool = True  # False: the time was up before it was done

    @classmethod
    def of_first(cls, tier: str, scores: FloatArray, seconds: float) -> "Step":
        """The first tier has nothing to blend with."""
        return cls(tier, scores, scores, None, np.zeros(len(scores), dtype=np.float32), scores.size, seconds)

    @classmethod
    def skipped(cls, tier: str, scores: FloatArray, alpha: FloatArray) -> "Step":
        """A tier for which no time was left."""
        nobody = Candidates.empty(len(scores))
        return cls(tier, scores, None, nobody, alpha, 0, 0.0, complete=False)


def pairs_of(steps: list[Step], row: int) -> int:
    """How many pairs of a query were asked for, by all tiers that read pairs."""
    return sum(int(step.candidates.counts[row]) for step in steps if step.candidates is not None)


@dataclass
class TierUsage:
    """What a tier has cost."""

    queries: int = 0
    calls: int = 0
    seconds: float = 0.0
    cut_short: int = 0  # queries of blocks in which the time was up before the tier was done

    def add(self, step: Step) -> None:
        """Count one more step."""
        self.queries += len(step.blended)
        self.calls += step.calls
        self.seconds += step.seconds
        self.cut_short += 0 if step.complete else len(step.blended)


@dataclass
class UsageLog:
    """What all tiers have cost, by name."""

    tiers: dict[str, TierUsage] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Count one more step."""
        self.tiers.setdefault(step.tier, TierUsage()).add(step)

    @property
    def seconds(self) -> float:
        """The time of all tiers together."""
        return sum(usage.seconds for usage in self.tiers.values())


class Deadline:
    """Runs from the moment it is made; `clock` tells the time in seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds > 0:
            raise SettingsError(f"a time limit of {seconds} seconds leaves no time, expected more than 0.")
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._end
