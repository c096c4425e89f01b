"""Train epoch by epoch: validate, stop in time, and resume after any interruption as if there had been none.

What a training will cost on the machine at hand is estimated from a few of its steps.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, Self

from cascader.display import progress
from cascader.errors import DataError, TrainingError
from cascader.storage import read_tensors, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
#: The name of the file in a model's folder.
CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A file to resume from; `identity` says which model, graph and settings it must have been made with."""

    path: Path
    identity: Mapping[str, Any]

    def save(self, tensors: "Mapping[str, Tensor]", progress: Mapping[str, Any]) -> None:
        """Write all tensors, and how far the training has come."""
        header = {"format": FORMAT, "identity": self.identity, "progress": progress}
        write_tensors(self.path, tensors, {"cascader": json.dumps(header, sort_keys=True)})

    def load(self) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
        """The tensors and the progress, or None if there is no checkpoint yet."""
        if not self.path.exists():
            return None
        tensors, metadata = read_tensors(self.path)
        try:
            header = json.loads(metadata.get("cascader", "{}"))
        except ValueError as error:
            raise DataError(f"{self.path} is not a checkpoint: {error}. Delete it to start over.") from error
        self._check(header)
        return tensors, header["progress"]

    def _check(self, header: Mapping[str, Any]) -> None:
        if header.get("format") != FORMAT:
            raise DataError(
                f"{self.path} is a checkpoint of format {header.get('format')}, expected {FORMAT}. It was written by "
                "another version of cascader: use that version, or delete the file to start over."
            )
        wanted, found = (json.loads(json.dumps(identity)) for identity in (self.identity, header["identity"]))
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise DataError(
                    f"{self.path} was made with {key} {found.get(key)!r}, but now it is {wanted.get(key)!r}. Choose "
                    "another folder, or delete the file to start over."
                )


#: Checkpoints are written at most this often, so that short epochs are not slowed down by the disk.
_SECONDS_BETWEEN_CHECKPOINTS = 20.0


class Trainable(Protocol):
    """What the loop trains.

    All randomness of an epoch must come from its number and the seed, never from what ran before: that is what makes
    a resumed training equal to an uninterrupted one, bit for bit.
    """

    def train_epoch(self, epoch: int) -> float:
        """Train one epoch, and return the mean loss."""
        ...

    def validate(self) -> float | None:
        """The quality of the current weights, higher is better; None if there is nothing to validate on."""
        ...

    def weights(self) -> "dict[str, Tensor]":
        """The current weights, which the loop copies."""
        ...

    def optimizer_state(self) -> "dict[str, Tensor]":
        """The state of the optimizer."""
        ...

    def load(self, weights: "Mapping[str, Tensor]", optimizer_state: "Mapping[str, Tensor] | None") -> None:
        """Restore weights, and the state of the optimizer if training is to continue."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long to train."""

    epochs: int
    valid_every: int = 1  # epochs between validations
    patience: int = 3  # validations without improvement before training stops
    time_limit: float = math.inf  # seconds of preparing and training; at least one epoch is always trained


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

    epochs: int = 0  # trained so far
    losses: list[float] = field(default_factory=list)  # of each epoch
    valid: dict[int, float] = field(default_factory=dict)  # the MRR on valid, by epoch
    seconds: float = 0.0  # spent in the loop
    preparing_seconds: float = 0.0  # spent before it, such as on reading texts, summed over all resumptions
    int8: Int8Check | None = None

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
        if self.epochs == 0:
            return {}
        return {
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "valid_mrr": None if self.best_valid is None else round(self.best_valid, 6),
            "seconds": round(self.seconds, 1),
            "preparing_seconds": round(self.preparing_seconds, 1),
        }

    def as_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`, also after a round trip through JSON, which turns epochs into strings."""
        valid = {int(epoch): mrr for epoch, mrr in saved["valid"].items()}
        int8 = None if saved["int8"] is None else Int8Check(**saved["int8"])
        return cls(**{**saved, "valid": valid, "int8": int8})

    def is_over(self, schedule: Schedule) -> bool:
        """Whether to stop: all epochs are done, valid has not improved for too long, or no time is left."""
        since_best = sum(epoch > (self.best_epoch or 0) for epoch in self.valid)
        return (
            self.epochs >= schedule.epochs
            or since_best >= schedule.patience
            or not self.has_time(schedule, self.seconds)
        )

    def has_time(self, schedule: Schedule, seconds: float) -> bool:
        """Whether another epoch of average length fits into the time limit after `seconds` in the loop."""
        mean = seconds / self.epochs if self.epochs else 0.0
        return self.epochs == 0 or self.preparing_seconds + seconds + mean <= schedule.time_limit


def train(
    trainable: Trainable,
    schedule: Schedule,
    checkpoint: Checkpoint | None = None,
    preparing_seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> TrainingHistory:
    """Train until the schedule is over, and leave in `trainable` the weights that were best on valid.

    `preparing_seconds` is how long it took to build `trainable`; it counts toward the time limit.
    """
    history, best = _resume(trainable, checkpoint)
    history.preparing_seconds += preparing_seconds
    saved_at = clock()
    with progress("training", total=schedule.epochs, unit="epochs", done=history.epochs) as advance:
        while not history.is_over(schedule):
            started = clock()
            loss = trainable.train_epoch(history.epochs + 1)
            _check_finite(loss, history.epochs + 1, checkpoint)
            history.epochs += 1
            history.losses.append(loss)
            # The last epoch that fits into the time limit is validated too, or its training would be lost.
            is_last = not history.has_time(schedule, history.seconds + clock() - started)
            best = _validate(trainable, schedule, history, best, is_last)
            history.seconds += clock() - started
            if checkpoint and (clock() - saved_at >= _SECONDS_BETWEEN_CHECKPOINTS or history.is_over(schedule)):
                _save(trainable, checkpoint, history, best)
                saved_at = clock()
            advance(1, _note(history))
    if best is not None:
        trainable.load(best, None)
    return history


def _validate(
    trainable: Trainable, schedule: Schedule, history: TrainingHistory, best: "dict[str, Tensor] | None", is_last: bool
) -> "dict[str, Tensor] | None":
    """Validate if it is time to, and return the best weights so far."""
    if history.epochs % schedule.valid_every and history.epochs < schedule.epochs and not is_last:
        return best
    mrr = trainable.validate()
    if mrr is None:
        return None
    history.valid[history.epochs] = mrr
    return _copy(trainable.weights()) if history.best_epoch == history.epochs else best


def _copy(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _check_finite(loss: float, epoch: int, checkpoint: Checkpoint | None) -> None:
    if not math.isfinite(loss):
        kept = ""
        if checkpoint is not None and checkpoint.path.exists():
            kept = f" The last good checkpoint is {checkpoint.path}."
        raise TrainingError(f"the loss became {loss} in epoch {epoch}. Lower learning_rate.{kept}")


def _save(
    trainable: Trainable, checkpoint: Checkpoint, history: TrainingHistory, best: "Mapping[str, Tensor] | None"
) -> None:
    parts = {"weights": trainable.weights(), "optimizer": trainable.optimizer_state(), "best": best or {}}
    tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    checkpoint.save(tensors, history.as_dict())


def _resume(trainable: Trainable, checkpoint: Checkpoint | None) -> "tuple[TrainingHistory, dict[str, Tensor] | None]":
    found = checkpoint.load() if checkpoint else None
    if found is None:
        return TrainingHistory(), None
    tensors, saved = found
    parts: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}, "best": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts[part][inner] = tensor
    trainable.load(parts["weights"], parts["optimizer"])
    return TrainingHistory.from_dict(saved), parts["best"] or None


def _note(history: TrainingHistory) -> str:
    best = "" if history.best_valid is None else f", valid MRR {history.best_valid:.4f}"
    return f"loss {history.losses[-1]:.4f}{best}"


#: Steps are timed for this long, after one to warm up; work such as a validation is timed for two sizes.
_SECONDS_TIMED = 0.4
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
        if sum(times[1:]) > _SECONDS_TIMED:
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
