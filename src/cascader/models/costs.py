"""What a training will cost on the machine at hand, estimated from a few steps of it."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

#: Steps are timed for this long, after one to warm up; work such as a validation is timed for two sizes.
_SECONDS = 0.4
_SIZES = (32, 128)


@dataclass(frozen=True)
class TrainingCost:
    """What a training costs, in seconds: once before it, for each epoch, and for each validation (`look`)."""

    preparing: float
    epoch: float
    look: float
    epochs: int  # at most
    valid_every: int
    parameters: int

    def seconds(self, epochs: int) -> float:
        """The seconds for so many epochs, with preparing and validating."""
        return self.preparing + epochs * self.epoch + math.ceil(epochs / self.valid_every) * self.look

    @property
    def most(self) -> float:
        """The seconds for all epochs; training usually stops before that, when valid no longer improves."""
        return self.seconds(self.epochs)

    @property
    def least(self) -> float:
        """The least that is worth starting for: the seconds until the first validation."""
        return self.seconds(min(self.epochs, self.valid_every))


def seconds_per_step(steps: Iterator[object]) -> float:
    """The median time of a step; the first one only warms up, unless it is the only one.

    Not the mean: a single step that another program held up would make the whole training seem long.
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
    """What `work(count)` would take, extrapolated linearly from two smaller counts."""
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
