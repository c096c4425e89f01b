"""What a training will take on the machine at hand, from a few steps of it."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

#: Steps are timed for so long, after one to warm up; a look and the like for two sizes.
_SECONDS = 0.4
_SIZES = (32, 128)


@dataclass(frozen=True)
class Cost:
    """What a training takes, in seconds: once before it, for an epoch, and for a look at valid."""

    preparing: float
    epoch: float
    look: float
    epochs: int  # at most
    valid_every: int
    parameters: int

    def seconds(self, epochs: int) -> float:
        """So many epochs, with all that belongs to them."""
        return self.preparing + epochs * self.epoch + math.ceil(epochs / self.valid_every) * self.look

    @property
    def most(self) -> float:
        """All epochs; valid mostly ends it before."""
        return self.seconds(self.epochs)

    @property
    def least(self) -> float:
        """As much as is worth starting for: until the first look at valid."""
        return self.seconds(min(self.epochs, self.valid_every))


def seconds_per_step(steps: Iterator[object]) -> float:
    """The median time of a step; the first one warms up, where there are others.

    Not the mean: one step that another program has held up would make a whole training seem long.
    """
    times: list[float] = []
    before = time.perf_counter()
    for _ in steps:
        now = time.perf_counter()
        times.append(now - before)
        before = now
        if sum(times[1:]) > _SECONDS:
            break
    return median(times[1:] or times or [0.0])


def seconds_for(work: Callable[[int], object], count: int, sizes: tuple[int, int] = _SIZES) -> float:
    """What `work(count)` would take: done for two smaller counts, with a line through their times."""
    small, large = (min(size, count) for size in sizes)
    if count == 0:
        return 0.0
    work(min(2, count))  # warms up
    after_small, after_large = _seconds(work, small), _seconds(work, large)
    if large == small or after_large <= after_small:
        return after_large * count / large
    slope = (after_large - after_small) / (large - small)
    return after_large + slope * (count - large)


def _seconds(work: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    work(count)
    return time.perf_counter() - started
