"""Budgets for answering, and how fast this machine reads pairs."""

import time
from dataclasses import dataclass

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, Queries
from cascader.scoring.scorer import Scorer

#: How many short pairs, and how many long ones, are read to measure the speed; a scorer may ask for more.
_PAIRS_TO_MEASURE = 192


@dataclass(frozen=True)
class Budget:
    """What answering may cost in all: `seconds`, or `pairs` that are read; None means no limit.

    >>> Budget(seconds=2.5, pairs=1_000).allows(seconds=1.0, pairs=1_200)
    False
    """

    seconds: float | None = None
    pairs: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "pairs"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise SettingsError(f"the budget is {value} {name}, expected 0 or more.")

    def allows(self, seconds: float, pairs: float) -> bool:
        """Return whether this cost is within the budget."""
        return (self.seconds is None or seconds <= self.seconds) and (self.pairs is None or pairs <= self.pairs)


@dataclass(frozen=True)
class ReadingSpeed:
    """How long reading takes: a time per pair, and a time per token."""

    seconds_per_pair: float
    seconds_per_token: float

    def seconds(self, pairs: float, tokens: float) -> float:
        """Estimate the time for a number of pairs and their tokens in all."""
        return pairs * self.seconds_per_pair + tokens * self.seconds_per_token

    @classmethod
    def measure(cls, scorer: Scorer, queries: Queries, candidates: Candidates) -> "ReadingSpeed":
        """Measure the speed on some of the shortest and some of the longest pairs, with a line through the two."""
        order = np.argsort(read_tokens(scorer, queries, candidates), kind="stable")
        count = getattr(scorer, "pairs_to_measure", _PAIRS_TO_MEASURE)
        ends = order[:count], order[-count:]
        # Counted again: a text that several pairs share is charged to the first of those that are read now.
        (short, short_time), (long, long_time) = (
            (read_tokens(scorer, queries, some).mean(), _seconds_per_pair(scorer, queries, some))
            for some in (_only(candidates, places) for places in ends)
        )
        if long - short < 1 or long_time <= short_time:  # the length explains nothing
            return cls(float((short_time + long_time) / 2), 0.0)
        # A line that makes short pairs free is noise: at its steepest, it passes through the origin.
        slope = min((long_time - short_time) / (long - short), long_time / long)
        return cls(float(long_time - slope * long), float(slope))


def _only(candidates: Candidates, places: IntArray) -> Candidates:
    wanted = np.zeros(len(candidates.ids), dtype=bool)
    wanted[places] = True
    return candidates.where(wanted)


def _seconds_per_pair(scorer: Scorer, queries: Queries, candidates: Candidates) -> float:
    times = []
    for _ in range(2):  # the first also warms up
        started = time.perf_counter()
        scorer.score(queries, candidates)
        times.append(time.perf_counter() - started)
    return min(times) / max(len(candidates.ids), 1)


def read_tokens(scorer: Scorer, queries: Queries, candidates: Candidates) -> IntArray:
    """Count the tokens that are read for each pair, or one per pair if the scorer cannot count them."""
    count = getattr(scorer, "token_counts", None)
    return count(queries, candidates) if count else np.ones(len(candidates.ids), dtype=np.int64)
