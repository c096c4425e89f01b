"""Records of what each tier did and cost, from which traces and figures are made without rerunning a model."""

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
    scores: FloatArray | None  # its own, (queries, entities) or (candidates,); None: it ran out of time
    candidates: Candidates | None  # the candidates it scored; None: all entities
    alpha: FloatArray  # (queries,) the weight of the tiers before it
    calls: int  # the number of scores it computed
    seconds: float
    complete: bool = True  # False: the deadline passed before it was done

    @classmethod
    def of_first(cls, tier: str, scores: FloatArray, seconds: float) -> "Step":
        """Record the first tier, which has nothing to blend with."""
        return cls(tier, scores, scores, None, np.zeros(len(scores), dtype=np.float32), scores.size, seconds)

    @classmethod
    def skipped(cls, tier: str, scores: FloatArray, alpha: FloatArray) -> "Step":
        """Record a tier for which no time was left."""
        return cls(tier, scores, None, Candidates.empty(len(scores)), alpha, 0, 0.0, complete=False)


def pairs_of(steps: list[Step], row: int) -> int:
    """Count the pairs of a query that all tiers together asked for."""
    return sum(int(step.candidates.counts[row]) for step in steps if step.candidates is not None)


@dataclass
class TierUsage:
    """What a tier has cost."""

    queries: int = 0
    calls: int = 0
    seconds: float = 0.0
    cut_short: int = 0  # queries in blocks that the deadline cut short

    def add(self, step: Step) -> None:
        """Add the cost of one step."""
        self.queries += len(step.blended)
        self.calls += step.calls
        self.seconds += step.seconds
        self.cut_short += 0 if step.complete else len(step.blended)


@dataclass
class UsageLog:
    """What all tiers have cost, by name."""

    tiers: dict[str, TierUsage] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Add the cost of one step."""
        self.tiers.setdefault(step.tier, TierUsage()).add(step)

    @property
    def seconds(self) -> float:
        """The seconds that all tiers took together."""
        return sum(usage.seconds for usage in self.tiers.values())


class Deadline:
    """A time limit that starts when it is created; `clock` returns the time in seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds > 0:
            raise SettingsError(f"a time limit of {seconds} seconds leaves no time, expected more than 0.")
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._end
