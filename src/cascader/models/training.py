"""Train epoch by epoch: validate, stop in time, and resume after any interruption as if there had been none.

What a training will cost on the machine at hand is estimated from a few of its steps.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from cascader.display import Advance, emit, progress
from cascader.errors import TrainingError
from cascader.models.checkpoints import Checkpoint, CheckpointParts, check_fits
from cascader.models.history import PartialEpoch, Schedule, TrainingHistory

if TYPE_CHECKING:
    from torch import Tensor

#: Checkpoints are written at most this often, so that the disk does not slow down the training.
_SECONDS_BETWEEN_CHECKPOINTS = 20.0
#: Where writing one takes several seconds, they are written so many times less often, but never more than this: a kill
#: must not lose two minutes.
_MOST_TIMES_LESS_OFTEN = 5.0


class Trainable(Protocol):
    """What the loop trains.

    All randomness of an epoch must come from its number and the seed, never from what ran before: that is what makes
    a resumed training equal to an uninterrupted one, bit for bit.
    """

    @property
    def step_count(self) -> int:
        """The number of steps in an epoch."""
        ...

    def steps(
        self, epoch: int, done: int = 0, state: "Mapping[str, Tensor] | None" = None
    ) -> Generator[tuple[float, int], None, None]:
        """Train an epoch step by step, and yield the loss and the size of each batch.

        An epoch that was interrupted goes on after the steps that are `done`, from what `epoch_state` gave there.
        """
        ...

    def epoch_state(self) -> "dict[str, Tensor]":
        """Between two steps: what the rest of the epoch depends on besides weights and optimizer."""
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


def train(
    trainable: Trainable,
    schedule: Schedule,
    checkpoint: Checkpoint | None = None,
    preparing_seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> TrainingHistory:
    """Train until the schedule is over, and leave in `trainable` the weights that were best on valid.

    `preparing_seconds` is how long it took to build `trainable`; it counts toward the time limit, as do validations. If
    the limit cuts the training short, the checkpoint holds what an uninterrupted training would have at that step, so
    that the same call with a larger limit goes on as if there had been no limit.
    """
    loop = _Loop(trainable, schedule, checkpoint, clock)
    history = loop.history
    history.preparing_seconds += preparing_seconds
    with progress("training", total=schedule.epochs, unit="epochs", done=history.epochs) as advance:
        while not history.is_over(schedule) and loop.train_epoch(advance):
            advance(1, _note(history, schedule))
    loop.finish()
    return history


class _Loop:
    """A training between two steps."""

    def __init__(
        self, trainable: Trainable, schedule: Schedule, checkpoint: Checkpoint | None, clock: Callable[[], float]
    ) -> None:
        self._trainable, self._schedule, self._checkpoint, self._clock = trainable, schedule, checkpoint, clock
        self.history, self._best, self._epoch_state = _resume(trainable, checkpoint)
        self._is_resumed = self.history.epochs > 0 or self.history.partial is not None
        self._now = self._saved_at = clock()
        self._wait = _SECONDS_BETWEEN_CHECKPOINTS

    def train_epoch(self, advance: Advance) -> bool:
        """Train an epoch, or what is left of it, and validate; False if time was up before its end."""
        if not self._train_steps(advance):
            return False
        history, partial = self.history, self.history.partial or PartialEpoch()
        history.epochs += 1
        history.losses.append(partial.loss / partial.rows)
        history.partial = None
        if history.epochs % self._schedule.valid_every == 0 or history.epochs >= self._schedule.epochs:
            self._validate(history.epochs)
        if self._is_time_to_save() or history.is_over(self._schedule):
            self._save()
        return True

    def _train_steps(self, advance: Advance) -> bool:
        history, count, note = self.history, self._trainable.step_count, _note(self.history, self._schedule)
        epoch, partial = history.epochs + 1, history.partial or PartialEpoch()
        with closing(self._steps(epoch, partial.steps)) as steps:
            for loss, rows in steps:
                partial = history.partial = partial.after(loss, rows)
                _check_finite(partial.loss, epoch, self._checkpoint)
                self._count_seconds()
                advance(0, f"step {partial.steps:,} of {count:,}{note and ', '}{note}")
                if partial.steps == count:
                    continue
                if not history.has_time(self._schedule):
                    self._epoch_state = self._trainable.epoch_state()
                    return False
                if self._is_time_to_save():
                    self._save(self._trainable.epoch_state())
        return True

    def _steps(self, epoch: int, done: int) -> Generator[tuple[float, int], None, None]:
        """The steps of an epoch; whether a training can go on from a checkpoint shows in its first one."""
        with closing(self._trainable.steps(epoch, done, self._epoch_state)) as steps:
            self._epoch_state = None
            with self._naming_checkpoint():
                first = next(steps, None)
            if first is not None:
                yield first
                yield from steps

    def _naming_checkpoint(self) -> AbstractContextManager[None]:
        is_first, self._is_resumed = self._is_resumed, False
        return self._checkpoint.naming_damage() if is_first and self._checkpoint else nullcontext()

    def finish(self) -> None:
        """Keep the best weights; if time was up, the last ones may be better than those that were validated."""
        history, limit = self.history, self._schedule.time_limit
        if not history.is_done(self._schedule):
            self._save(self._epoch_state)
            history.cut_at = limit
            epoch = history.epochs + (history.partial is not None)
            if epoch not in history.valid and history.spent < limit:
                self._validate(epoch)
        if self._best is not None:
            self._trainable.load(self._best, None)

    def _validate(self, epoch: int) -> None:
        """Validate, and keep the weights if they are the best so far."""
        before = self.history.seconds
        mrr = self._trainable.validate()
        self._count_seconds()
        self.history.validation_seconds = self.history.seconds - before
        if mrr is not None:
            self.history.valid[epoch] = mrr
        if self.history.best_epoch == epoch:
            self._best = _copy(self._trainable.weights())
        _emit_validated(self.history, epoch)

    def _count_seconds(self) -> None:
        before, self._now = self._now, self._clock()
        self.history.seconds += max(self._now - before, 0.0)  # a clock that goes back must not make time

    def _is_time_to_save(self) -> bool:
        return abs(self._now - self._saved_at) >= self._wait

    def _save(self, epoch_state: "Mapping[str, Tensor] | None" = None) -> None:
        if self._checkpoint is None:
            return
        started = self._clock()
        parts = CheckpointParts(
            self._trainable.weights(), self._trainable.optimizer_state(), self._best or {}, dict(epoch_state or {})
        )
        self._checkpoint.save(parts.named(), self.history.as_dict())
        self._saved_at = self._clock()
        times = min(max(self._saved_at - started, 1.0), _MOST_TIMES_LESS_OFTEN)
        self._wait = times * _SECONDS_BETWEEN_CHECKPOINTS


def _resume(
    trainable: Trainable, checkpoint: Checkpoint | None
) -> "tuple[TrainingHistory, dict[str, Tensor] | None, dict[str, Tensor] | None]":
    """The history, the best weights and, within an epoch, its state; the trainable gets its weights."""
    found = checkpoint.load() if checkpoint else None
    if checkpoint is None or found is None:
        return TrainingHistory(), None, None
    parts, history = found
    with checkpoint.naming_damage():
        check_fits(parts, history, trainable.weights(), trainable.step_count)
        trainable.load(parts.weights, parts.optimizer)
    return history, parts.best or None, parts.epoch or None


def _copy(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _check_finite(loss: float, epoch: int, checkpoint: Checkpoint | None) -> None:
    if not math.isfinite(loss):
        kept = ""
        if checkpoint is not None and checkpoint.path.exists():
            kept = f" The last good checkpoint is {checkpoint.path}."
        raise TrainingError(f"the loss became {loss} in epoch {epoch}. Lower learning_rate.{kept}")


def _note(history: TrainingHistory, schedule: Schedule) -> str:
    """How good it is, and when it ends unless it gets better: usually long before all epochs are trained."""
    if not history.losses:
        return ""
    best, ends = history.best_valid, history.ends_after(schedule)
    found = "" if best is None else f", best valid MRR {best:.4f} after epoch {history.best_epoch}"
    soon = f", ends after epoch {ends} unless that improves" if best is not None and ends < schedule.epochs else ""
    return f"loss {history.losses[-1]:.4f}{found}{soon}"


def _emit_validated(history: TrainingHistory, epoch: int) -> None:
    values = {} if not history.losses else {"loss": history.losses[-1]}
    values |= {"valid_mrr": history.valid[epoch]} if epoch in history.valid else {}
    if values:
        figures = ", ".join(f"{name.replace('_mrr', ' MRR')} {value:.4f}" for name, value in values.items())
        emit("validated", f"After epoch {epoch}: {figures}.", values={"epoch": epoch, **values})


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
    if large == small:
        return _seconds(work, count)
    after_small, after_large = _seconds(work, small), _seconds(work, large)
    if after_large <= after_small:
        return after_large * count / large
    slope = (after_large - after_small) / (large - small)
    return after_large + slope * (count - large)


def _seconds(work: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    work(count)
    return time.perf_counter() - started
