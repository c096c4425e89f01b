"""Seconds or pairs in, a prediction out: what a cascade costs on the machine at hand."""

import time
from dataclasses import dataclass

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import Candidates, IntArray, Queries
from cascader.scoring.scorer import Scorer

#: Pairs that are read to see how fast it goes, of short ones and of long ones each; a scorer may need more.
_PAIRS_TO_MEASURE = 192


@dataclass(frozen=True)
class Budget:
    """What answering may cost: `seconds` for all queries, or `pairs` that are read together; None: no matter.

    >>> Budget(seconds=2.5, pairs=1_000).allows(seconds=1.0, pairs=1_200)
    False
    """

    seconds: float | None = None
    pairs: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "pairs"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise SettingsError(f"a budget of {value} {name}, expected 0 or more.")

    def allows(self, seconds: float, pairs: float) -> bool:
        """Whether so much is within it."""
        return (self.seconds is None or seconds <= self.seconds) and (self.pairs is None or pairs <= self.pairs)


@dataclass(frozen=True)
class ReadingSpeed:
    """How long pairs take to read: so much for each, and so much for each of its tokens."""

    seconds_per_pair: float
    seconds_per_token: float

    def seconds(self, pairs: float, tokens: float) -> float:
        """The time for so many pairs with so many tokens in all."""
        return pairs * self.seconds_per_pair + tokens * self.seconds_per_token

    @classmethod
    def measure(cls, scorer: Scorer, queries: Queries, candidates: Candidates) -> "ReadingSpeed":
        """Read some of the shortest and some of the longest pairs, and draw a line through the two."""
        order = np.argsort(read_tokens(scorer, queries, candidates), kind="stable")
        count = getattr(scorer, "pairs_to_measure", _PAIRS_TO_MEASURE)
        ends = order[:count], order[-count:]
        # Counted again: of a text that several pairs share, the first of those that are read now pays for it.
        (short, short_time), (long, long_time) = (
            (read_tokens(scorer, queries, some).mean(), _seconds_per_pair(scorer, queries, some))
            for some in (_only(candidates, places) for places in ends)
        )
        if long - short < 1 or long_time <= short_time:  # all alike: the length explains nothing
            return cls(float((short_time + long_time) / 2), 0.0)
        # A line that says short pairs are free would be noise: through the origin it goes at the steepest.
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
    """The tokens that are read for each pair, where the scorer knows them; else one for each."""
    count = getattr(scorer, "token_counts", None)
    return count(queries, candidates) if count else np.ones(len(candidates.ids), dtype=np.int64)
