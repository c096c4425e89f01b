"""Train epoch by epoch: watch valid, stop in time, and go on after any interruption as if there had been none."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from torch import Tensor

from cascader.errors import TrainingError
from cascader.models.training.checkpoints import Checkpoint
from cascader.progress import progress

#: At most this often a checkpoint is written, so that short epochs do not become a matter of the disk.
_SECONDS_BETWEEN_CHECKPOINTS = 20.0


class Trainable(Protocol):
    """What the loop trains.

    All randomness of an epoch must come from its number and the seed, never from what ran before: that is what makes
    a resumed training equal to an uninterrupted one, to the bit.
    """

    def train_epoch(self, epoch: int) -> float:
        """Train one epoch, and return the mean loss."""
        ...

    def validate(self) -> float | None:
        """How good the weights are now, higher being better; None where there is no valid split."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """What is learnt. The loop copies it."""
        ...

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers."""
        ...

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Take weights, and what the optimizer remembered if it is to go on."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long to train."""

    epochs: int
    valid_every: int = 1  # epochs between two looks at valid
    patience: int = 3  # looks without a gain before it stops
    max_minutes: float = math.inf  # of preparing and training; one epoch there always is


@dataclass
class History:
    """What happened so far."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    valid: dict[int, float] = field(default_factory=dict)  # by epoch
    seconds: float = 0.0  # of the loop
    preparing_seconds: float = 0.0  # before it, each time it was started: texts are read, negatives are looked for

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose weights were best on valid; of equally good ones, the first."""
        return max(self.valid, key=lambda epoch: (self.valid[epoch], -epoch)) if self.valid else None

    @property
    def best_valid(self) -> float | None:
        """The best figure on valid."""
        return None if self.best_epoch is None else self.valid[self.best_epoch]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for a model to keep."""
        return {**asdict(self), "best_epoch": self.best_epoch}

    def is_over(self, schedule: Schedule) -> bool:
        """Whether to stop: all epochs done, no gain for too long, or no time left."""
        looks_since_best = sum(epoch > (self.best_epoch or 0) for epoch in self.valid)
        return (
            self.epoch >= schedule.epochs
            or looks_since_best >= schedule.patience
            or not self.has_time(schedule, self.seconds)
        )

    def has_time(self, schedule: Schedule, seconds: float) -> bool:
        """Whether there is time for another epoch as long as the others, after so many seconds of the loop."""
        mean = seconds / self.epoch if self.epoch else 0.0
        return self.epoch == 0 or self.preparing_seconds + seconds + mean <= schedule.max_minutes * 60


def summary_of(history: Mapping[str, Any]) -> dict[str, Any]:
    """The few figures of a kept history that belong beside a result."""
    if not history:
        return {}
    preparing = history.get("preparing_seconds")  # an older history does not know
    best, valid = history["best_epoch"], {int(epoch): figure for epoch, figure in history["valid"].items()}
    return {
        "epochs": history["epoch"],
        "best_epoch": best,
        "valid_mrr": None if best is None else round(valid[best], 6),
        "seconds": round(history["seconds"], 1),
        "preparing_seconds": None if preparing is None else round(preparing, 1),
    }


def train(
    trainable: Trainable, schedule: Schedule, checkpoint: Checkpoint | None = None, preparing_seconds: float = 0.0
) -> History:
    """Train until the schedule is over; `trainable` then has the weights that were best on valid.

    `preparing_seconds` is how long it took to make `trainable`, for the history.
    """
    history, best = _resume(trainable, checkpoint)
    history.preparing_seconds += preparing_seconds
    saved_at = time.monotonic()
    with progress("training", total=schedule.epochs, unit="epochs", done=history.epoch) as advance:
        while not history.is_over(schedule):
            started = time.monotonic()
            loss = trainable.train_epoch(history.epoch + 1)
            _check_finite(loss, history.epoch + 1, checkpoint)
            history.epoch += 1
            history.losses.append(loss)
            # What is trained when the time is up gets its look too: else it would be lost.
            is_last = not history.has_time(schedule, history.seconds + time.monotonic() - started)
            best = _look_at_valid(trainable, schedule, history, best, is_last)
            history.seconds += time.monotonic() - started
            if checkpoint and (
                time.monotonic() - saved_at >= _SECONDS_BETWEEN_CHECKPOINTS or history.is_over(schedule)
            ):
                _save(trainable, checkpoint, history, best)
                saved_at = time.monotonic()
            advance(1, _note(history))
    if best is not None:
        trainable.load(best, None)
    return history


def _look_at_valid(
    trainable: Trainable, schedule: Schedule, history: History, best: dict[str, Tensor] | None, is_last: bool
) -> dict[str, Tensor] | None:
    """Validate when it is time, and return the best weights so far."""
    if history.epoch % schedule.valid_every and history.epoch < schedule.epochs and not is_last:
        return best
    figure = trainable.validate()
    if figure is None:
        return None
    history.valid[history.epoch] = figure
    return _copy(trainable.weights()) if history.best_epoch == history.epoch else best


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _check_finite(loss: float, epoch: int, checkpoint: Checkpoint | None) -> None:
    if not math.isfinite(loss):
        kept = (
            f" The last good checkpoint is kept in {checkpoint.path}."
            if checkpoint and checkpoint.path.exists()
            else ""
        )
        raise TrainingError(f"the loss became {loss} in epoch {epoch}. Lower learning_rate.{kept}")


def _save(trainable: Trainable, checkpoint: Checkpoint, history: History, best: Mapping[str, Tensor] | None) -> None:
    parts = {"weights": trainable.weights(), "optimizer": trainable.optimizer_state(), "best": best or {}}
    tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    checkpoint.save(tensors, asdict(history))


def _resume(trainable: Trainable, checkpoint: Checkpoint | None) -> tuple[History, dict[str, Tensor] | None]:
    found = checkpoint.load() if checkpoint else None
    if found is None:
        return History(), None
    tensors, saved = found
    parts: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}, "best": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts[part][inner] = tensor
    trainable.load(parts["weights"], parts["optimizer"])
    saved["valid"] = {int(epoch): figure for epoch, figure in saved["valid"].items()}
    return History(**saved), parts["best"] or None


def _note(history: History) -> str:
    best = "" if history.best_valid is None else f", valid MRR {history.best_valid:.4f}"
    return f"loss {history.losses[-1]:.4f}{best}"
