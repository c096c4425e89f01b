"""How long to train, and how a training went."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from cascader.records import Count, Seconds


@dataclass(frozen=True)
class Schedule:
    """How long to train."""

    epochs: int
    valid_every: int = 1  # epochs between validations
    patience: int = 3  # validations without improvement before training stops
    time_limit: float = math.inf  # seconds of preparing, training and validating; at least one step is always trained


@dataclass(frozen=True)
class PartialEpoch:
    """How far an epoch has come that is not complete."""

    steps: Count = 0
    rows: Count = 0
    loss: float = 0.0  # of all rows, summed up

    def after(self, loss: float, rows: int) -> "PartialEpoch":
        """The same after one more step, with the mean loss of its rows."""
        return PartialEpoch(self.steps + 1, self.rows + rows, self.loss + loss * rows)


@dataclass(frozen=True)
class Int8Check:
    """The MRR on valid in float32 and in int8, and whether the model scores in int8 because of it."""

    float32_mrr: float | None
    int8_mrr: float | None
    is_used: bool


@dataclass
class TrainingHistory:
    """How a training went; a model without epochs leaves it empty.

    >>> TrainingHistory(epochs=4, losses=[3, 2, 1, 1], valid={2: 0.25, 4: 0.5}, seconds=1.0).best_epoch
    4
    """

    epochs: Count = 0  # trained so far, to their end
    losses: list[float] = field(default_factory=list)  # of each epoch
    valid: dict[Count, float] = field(default_factory=dict)  # the MRR on valid, by epoch
    seconds: Seconds = 0.0  # spent in the loop
    preparing_seconds: Seconds = 0.0  # spent before it, such as on reading texts, summed over all resumptions
    validation_seconds: Seconds = 0.0  # the last validation took
    partial: PartialEpoch | None = None  # the epoch that was interrupted or cut short after those
    cut_at: Seconds | None = None  # the time limit in seconds, if it is what ended the training
    int8: Int8Check | None = None

    @property
    def spent(self) -> float:
        """The seconds that count toward a time limit."""
        return self.preparing_seconds + self.seconds

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best MRR on valid, the first of equals; None without validation."""
        return max(self.valid, key=lambda epoch: (self.valid[epoch], -epoch)) if self.valid else None

    @property
    def best_valid(self) -> float | None:
        """The best MRR on valid."""
        return None if self.best_epoch is None else self.valid[self.best_epoch]

    def summary(self) -> dict[str, Any]:
        """The few figures that belong beside a result; empty for a model without epochs."""
        if self.epochs == 0 and self.partial is None:
            return {}
        return {
            "epochs": self.epochs,
            **({} if self.partial is None else {"steps_of_next_epoch": self.partial.steps}),
            "best_epoch": self.best_epoch,
            "valid_mrr": None if self.best_valid is None else round(self.best_valid, 6),
            "seconds": round(self.seconds, 1),
            "preparing_seconds": round(self.preparing_seconds, 1),
        }

    def as_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)

    def is_over(self, schedule: Schedule) -> bool:
        """Whether to stop: all epochs are done, valid has not improved for too long, or no time is left."""
        return self.is_done(schedule) or not self.has_time(schedule)

    def is_done(self, schedule: Schedule) -> bool:
        """Whether more time would change nothing: all epochs are done, or valid has not improved for too long."""
        since_best = sum(epoch > (self.best_epoch or 0) for epoch in self.valid)
        return self.epochs >= schedule.epochs or since_best >= schedule.patience

    def ends_after(self, schedule: Schedule) -> int:
        """The epoch after which training ends if valid does not improve again."""
        since_best = sum(epoch > (self.best_epoch or 0) for epoch in self.valid)
        wait = (schedule.patience - since_best) * schedule.valid_every
        return min(self.epochs - self.epochs % schedule.valid_every + wait, schedule.epochs)

    def has_time(self, schedule: Schedule) -> bool:
        """Whether an epoch of average length fits into the time limit, or one more step of an epoch that is begun."""
        if self.partial is not None:
            return self.spent + self.validation_seconds < schedule.time_limit
        return self.epochs == 0 or self.spent + self.seconds / self.epochs <= schedule.time_limit
