"""Train with several processes on one machine: each computes the gradient of its share of every batch.

The process that trains draws the batches, changes the weights, validates, keeps the time and writes files, as it does
alone. Its helpers only compute: they get the weights and a share of what was drawn, and give back a gradient. So the
batches, the draws and, but for dropout, the losses are those of one process, and there is nothing else to resume.
"""

import signal
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from cascader.display import no_progress
from cascader.errors import CascaderError, SettingsError, TrainingError
from cascader.graph import IntArray, KnowledgeGraph, Queries
from cascader.models.device import training_processes, using_device
from cascader.models.optimization import BatchT, Draws, GradientTraining

_LOOPBACK = "127.0.0.1"
#: A helper waits for as long as a validation takes; that the other side is gone, it notices at once.
_PATIENCE = timedelta(days=30)


class Work(Protocol):
    """What was drawn for a batch: all that its loss depends on besides the weights."""

    def shares(self, count: int) -> Sequence[tuple[Self, float]]:
        """Cut it by its questions into so many parts, the first of which is not empty, and say what each counts.

        The losses of the parts, times what they count, add up to the loss of the whole; a part may be empty.
        """
        ...

    def __len__(self) -> int:
        """The number of questions."""
        ...


@dataclass(frozen=True, eq=False)
class ComparedQuestions:
    """Questions, and the entities that the answers of all of them are compared with.

    Given these, the loss is a mean over the questions: every process encodes all that is compared, and its questions.
    """

    questions: Queries
    compared: IntArray  # ascending

    def __len__(self) -> int:
        return len(self.questions)

    def shares(self, count: int) -> list[tuple["ComparedQuestions", float]]:
        """Cut the questions into so many parts."""
        return [
            (ComparedQuestions(self.questions[places], self.compared), len(places) / len(self))
            for places in parts_of(len(self), count)
        ]


def parts_of(size: int, count: int) -> list[IntArray]:
    """Cut the places from 0 to `size` into parts of about the same size, the larger ones first."""
    return np.array_split(np.arange(size), count)


WorkT = TypeVar("WorkT", bound=Work)


class SharedTraining(GradientTraining[BatchT], Generic[BatchT, WorkT]):
    """A training whose batches can be shared among processes, since drawing and computing are apart."""

    helpers: "Helpers | None" = None

    @abstractmethod
    def _drawn(self, batch: BatchT, draws: Draws) -> WorkT:
        """Make all random choices for a batch."""

    @abstractmethod
    def loss_of(self, work: WorkT) -> Tensor:
        """The loss of what was drawn."""

    def _loss(self, batch: BatchT, draws: Draws) -> Tensor:
        return self.loss_of(self._drawn(batch, draws))

    def _gradients(self, batch: BatchT, draws: Draws, number: int) -> float:
        if self.helpers is None:
            return super()._gradients(batch, draws, number)
        (mine, counts), *others = self._drawn(batch, draws).shares(self.helpers.count + 1)
        self.helpers.start(others, self.flat_weights(), self._seed * 1_000_003 + number)
        loss = counts * self.loss_of(mine)
        loss.backward()  # type: ignore[no-untyped-call]
        summed = self.helpers.add(self.flat_gradients(loss))
        self._take_gradients(summed[:-1])
        return float(summed[-1])

    def start_helping(self) -> None:
        """In a helper: prepare the modules for training."""
        self._start_epoch(None)

    def learn_helping(self, work: WorkT, counts: float, weights: Tensor) -> Tensor:
        """In a helper: take weights, and return the gradient of a share and its loss in one vector."""
        with torch.no_grad():
            for parameter, part in self._split(weights):
                parameter.copy_(part)
        self._optimizer.zero_grad()
        if len(work) == 0:
            return torch.zeros(len(weights) + 1)
        loss = counts * self.loss_of(work)
        loss.backward()  # type: ignore[no-untyped-call]
        return self.flat_gradients(loss)

    def flat_weights(self) -> Tensor:
        """All parameters in one vector; shape (parameters,)."""
        return torch.cat([parameter.detach().flatten().cpu() for parameter in self._parameters.values()])

    def flat_gradients(self, loss: Tensor) -> Tensor:
        """The gradients of all parameters, 0 where there is none, and the loss; shape (parameters + 1,)."""
        found = [torch.zeros_like(each) if each.grad is None else each.grad for each in self._parameters.values()]
        return torch.cat([*(gradient.flatten().cpu() for gradient in found), loss.detach().cpu()[None]])

    def _take_gradients(self, gradients: Tensor) -> None:
        """Set the gradients of those parameters that have one: the optimizer leaves the others alone."""
        for parameter, part in self._split(gradients):
            if parameter.grad is not None:
                parameter.grad.copy_(part)

    def _split(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        parameters = list(self._parameters.values())
        parts = torch.split(flat, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            yield parameter, part.view_as(parameter)


class Helpful(Protocol):
    """A model that can also be built to help another process train it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - its own
        ...

    def prepare_helping(self, kg: KnowledgeGraph) -> Any:  # noqa: ANN401 - a SharedTraining of any batches
        """What computes the gradients of this model's training; its weights come from the other process."""
        ...


@dataclass(frozen=True)
class Job:
    """What a helper is to compute, in a form that another process can be given."""

    model: type[Helpful]
    settings: Mapping[str, Any]
    kg: KnowledgeGraph
    device: str

    def prepared(self) -> Any:  # noqa: ANN401 - a SharedTraining of any batches
        """Build the training."""
        with using_device(self.device):
            return self.model(**self.settings).prepare_helping(self.kg)


@contextmanager
def helping(training: object, model: type[Helpful], settings: Mapping[str, Any], kg: KnowledgeGraph) -> Iterator[None]:
    """Let as many processes compute the gradients of a training as were asked for, if its batches can be shared."""
    count = training_processes()
    if count == 1 or not isinstance(training, SharedTraining):
        yield
        return
    if not torch.distributed.is_available():
        raise SettingsError(
            f"training_processes is {count}, but this build of torch, {torch.__version__}, cannot connect processes. "
            "Set it to 1, or install another build."
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // count))
    jobs = [Job(model, settings, kg, _device_of(rank, training.device)) for rank in range(1, count)]
    helpers = Helpers(jobs, torch.get_num_threads())
    try:
        helpers.join()
        training.helpers = helpers
        yield
    finally:
        training.helpers = None
        helpers.close()
        torch.set_num_threads(threads)


def _device_of(rank: int, first: torch.device) -> str:
    """The device of a process: of several GPUs, each has its own."""
    if first.type != "cuda":
        return str(first)
    return f"cuda:{((first.index or 0) + rank) % torch.cuda.device_count()}"


class Helpers:
    """The other processes of a training; whoever starts them must close them."""

    def __init__(self, jobs: Sequence[Job], threads: int) -> None:
        self.count = len(jobs)
        self._folder = tempfile.TemporaryDirectory(prefix="cascader-training-")
        self._store = str(Path(self._folder.name) / "store")
        self._others: list[tuple[BaseProcess, Connection]] = []
        context = get_context("spawn")
        for rank, job in enumerate(jobs, start=1):
            ours, theirs = context.Pipe()
            arguments = (theirs, job, self._store, rank, self.count + 1, threads)
            process = context.Process(target=_help, args=arguments, daemon=True)
            self._others.append((process, ours))
            process.start()
            theirs.close()  # otherwise a dead helper's pipe would stay open

    def join(self) -> None:
        """Wait until all are ready, and connect with them."""
        for place, (_, connection) in enumerate(self._others):
            try:
                error = connection.recv()
            except (EOFError, OSError):
                self._fail(place)
            if error is not None:
                raise error
        self._group = _group(self._store, 0, self.count + 1)

    def start(self, shares: Sequence[tuple[Work, float]], weights: Tensor, seed: int) -> None:
        """Give each helper its share of a batch, and all of them the weights."""
        for place, ((_, connection), share) in enumerate(zip(self._others, shares, strict=True)):
            try:
                connection.send((*share, seed))
            except OSError:
                self._fail(place)
        self._together(self._group.broadcast(weights, 0))

    def add(self, mine: Tensor) -> Tensor:
        """Add up the gradients and losses of all processes."""
        self._together(self._group.reduce(mine, 0))
        return mine

    def _together(self, work: Any) -> None:  # noqa: ANN401 - torch does not name its type
        try:
            work.wait()
        except RuntimeError:
            self._fail(self._dead())

    def _dead(self) -> int:
        """The place of a process that has ended."""
        for place, (process, _) in enumerate(self._others):
            process.join(timeout=1.0)
            if process.exitcode is not None:
                return place
        return 0

    def _fail(self, place: int) -> NoReturn:
        process, connection = self._others[place]
        try:
            error = connection.recv() if connection.poll() else None
        except (EOFError, OSError):
            error = None
        if isinstance(error, CascaderError):
            raise error
        process.join(timeout=5.0)
        raise TrainingError(
            f"training process {process.pid} died (exit code {process.exitcode}), perhaps for lack of memory, so the "
            "others have stopped, too. The same command goes on from the last checkpoint; fewer training processes "
            'need less memory. In your own script, start under: if __name__ == "__main__".'
        )

    def close(self) -> None:
        """End the helpers."""
        for process, connection in self._others:
            process.kill()
            process.join()
            connection.close()
        self._folder.cleanup()


def _group(store: str, rank: int, size: int) -> Any:  # noqa: ANN401 - torch's stubs lack most of its methods
    """Connect with the other processes of this machine, and with none of another.

    Not torch's default group: that one may be the user's, and it listens wherever the machine's name leads.
    """
    distributed: Any = torch.distributed
    gloo = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = _PATIENCE
    options._devices = [gloo.create_device(hostname=_LOOPBACK)]
    return gloo(distributed.FileStore(store, size), rank, size, options)


def _help(connection: Connection, job: Job, store: str, rank: int, size: int, threads: int) -> None:
    """In a helper: build the training, then compute gradients until the other process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other process's to handle
    torch.set_num_threads(threads)
    with no_progress():
        try:
            training = job.prepared()
            connection.send(None)
            group = _group(store, rank, size)
            training.start_helping()
            weights = training.flat_weights()
            while True:
                work, counts, seed = connection.recv()
                group.broadcast(weights, 0).wait()
                torch.manual_seed(seed * size + rank)  # for dropout: other masks than those of the other shares
                group.reduce(training.learn_helping(work, counts, weights), 0).wait()
        except CascaderError as error:
            connection.send(error)
        except (EOFError, OSError):
            return
