"""What a model trains with: the optimizer and its state, the losses, and the negatives that they compare with."""

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.optim import Optimizer

from cascader.errors import TrainingError
from cascader.graph import Candidates, IntArray, KnownAnswers, Queries
from cascader.models.device import forked_rng, rng_state, set_rng_state
from cascader.scoring.scorer import Scorer, rejected_answers


class Draws:
    """The random draws of one epoch: all of them come from the seed and the epoch's number.

    Between two steps their state can be saved, so that an epoch can go on where it was interrupted. torch's global
    generator, from which dropout draws, is one of them: whoever makes draws must do so within `forked_rng`. All but
    dropout is drawn on the CPU, and so is the same on every device.
    """

    def __init__(self, seed: int, epoch: int, device: torch.device) -> None:
        self._device = device
        self.numpy = np.random.default_rng([seed, epoch])
        self.torch = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        torch.manual_seed(seed * 1_000_003 + epoch)

    def state(self) -> dict[str, Tensor]:
        """The state of the generators as named tensors."""
        numpy_state = json.dumps(self.numpy.bit_generator.state).encode()
        return {
            "numpy": torch.frombuffer(bytearray(numpy_state), dtype=torch.uint8),
            "torch": self.torch.get_state(),
            self._dropout: rng_state(self._device),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state; one of another device has nothing to say about dropout on this one."""
        self.numpy.bit_generator.state = json.loads(state["numpy"].numpy().tobytes())
        self.torch.set_state(state["torch"])
        if self._dropout in state:
            set_rng_state(self._device, state[self._dropout])

    @property
    def _dropout(self) -> str:
        return "dropout" if self._device.type == "cpu" else f"dropout on {self._device.type}"


BatchT = TypeVar("BatchT", bound=Sized)


class GradientTraining(ABC, Generic[BatchT]):
    """Trains named parameters with an optimizer; a subclass says what a batch, its loss and a validation are."""

    def __init__(self, parameters: Mapping[str, Tensor], optimizer: Optimizer, seed: int) -> None:
        self._parameters, self._optimizer, self._seed = parameters, optimizer, seed
        self.device = next(iter(parameters.values())).device
        self._draws: Draws | None = None  # of the epoch that is being trained

    def steps(
        self, epoch: int, done: int = 0, state: Mapping[str, Tensor] | None = None
    ) -> Generator[tuple[float, int], None, None]:
        """Train an epoch batch by batch, and yield the loss and the size of each batch.

        An epoch that was interrupted goes on after the steps that are `done`, from what `epoch_state` gave there.
        """
        with forked_rng(self.device), _naming_memory(self.device):
            self._start_epoch(state)
            self._draws = Draws(self._seed, epoch, self.device)
            batches = self._batches(epoch, self._draws)
            if state is not None:
                self._draws.restore(state)
            for number, batch in enumerate(batches[done:], start=done):
                self._optimizer.zero_grad()
                loss = self._gradients(batch, self._draws, (epoch - 1) * len(batches) + number)
                self._step((epoch - 1) * len(batches) + number)
                yield loss, len(batch)

    def epoch_state(self) -> dict[str, Tensor]:
        """Between two steps: what the rest of the epoch depends on besides weights and optimizer."""
        return {} if self._draws is None else self._draws.state()

    def _start_epoch(self, state: Mapping[str, Tensor] | None) -> None:  # noqa: B027 - optional
        """Prepare the modules for training; `state` is given where an epoch goes on."""

    @abstractmethod
    def _batches(self, epoch: int, draws: Draws) -> Sequence[BatchT]:
        """The batches of an epoch; as many in each."""

    @abstractmethod
    def _loss(self, batch: BatchT, draws: Draws) -> Tensor:
        """The loss of a batch."""

    def _gradients(self, batch: BatchT, draws: Draws, number: int) -> float:
        """Compute the gradients for step `number` of the whole training, from 0, and return the loss."""
        loss = self._loss(batch, draws)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def _step(self, number: int) -> None:
        """Change the weights, in step `number` of the whole training, from 0."""
        self._optimizer.step()

    @property
    @abstractmethod
    def step_count(self) -> int:
        """The number of batches in an epoch."""

    @abstractmethod
    def validate(self) -> float | None:
        """The quality of the current weights on valid; None if there is nothing to validate on."""

    def weights(self) -> dict[str, Tensor]:
        """The current weights."""
        return {name: parameter.detach() for name, parameter in self._parameters.items()}

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's state as named tensors, so that a checkpoint can hold it without pickle."""
        states = self._optimizer.state_dict()["state"]
        return {f"{i}.{name}": torch.as_tensor(value) for i, state in states.items() for name, value in state.items()}

    def load(self, weights: Mapping[str, Tensor], optimizer_state: Mapping[str, Tensor] | None) -> None:
        """Restore weights, and the state of the optimizer if training is to continue."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(weights[name])
        if optimizer_state:
            self._restore_optimizer(optimizer_state)

    def _restore_optimizer(self, saved: Mapping[str, Tensor]) -> None:
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in saved.items():
            number, _, inner = name.partition(".")
            if value.dim() and value.shape != parameters[int(number)].shape:
                raise ValueError(f"optimizer/{name} has shape {tuple(value.shape)}, another than its parameter")
            states.setdefault(int(number), {})[inner] = value
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": states})


@contextmanager
def _naming_memory(device: torch.device) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"the memory of {device} is too small for this training. Lower batch_size, or train on cpu."
        ) from error


def in_batches(order: IntArray, size: int) -> list[IntArray]:
    """Cut an order into batches."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def trainable_parameters(modules: nn.Module) -> dict[str, Tensor]:
    """The parameters of `modules` that are to be trained, by name."""
    return {name: parameter for name, parameter in modules.named_parameters() if parameter.requires_grad}


def softmax_loss(scores: Tensor, rows: Tensor, answers: Tensor, weights: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy of answers against all entities; a question with many answers is scored only once.

    `scores` is (questions, entities); answer i belongs to question `rows[i]` and has the weight `weights[i]`.
    """
    loss: Tensor = _SoftmaxLoss.apply(scores, rows, answers, weights, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


def masked_softmax_loss(scores: Tensor, rows: Tensor, answers: Tensor, weights: Tensor, is_known: Tensor) -> Tensor:
    """The same, but an answer is not compared with other answers, where `is_known`, (questions, entities), is True."""
    golds = scores[rows, answers]
    negatives = scores.masked_fill(is_known, -torch.inf).logsumexp(dim=1)  # (questions,)
    return (torch.logaddexp(golds, negatives.index_select(0, rows)) - golds) @ weights


class BackwardContext(Protocol):
    """What autograd hands from a function's forward pass to its backward pass."""

    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""
        ...


class _SoftmaxLoss(torch.autograd.Function):
    """Has its gradient in closed form, softmax minus the answers: two passes over the scores fewer than autograd."""

    @staticmethod
    def forward(
        ctx: BackwardContext,
        scores: Tensor,
        rows: Tensor,
        answers: Tensor,
        weights: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        log_probabilities = scores.log_softmax(dim=1)
        of_questions = scores.new_zeros(len(scores)).index_add_(0, rows, weights)
        loss = -(log_probabilities[rows, answers] @ weights)
        if label_smoothing:
            of_all = -(log_probabilities.mean(dim=1) @ of_questions)
            loss = (1 - label_smoothing) * loss + label_smoothing * of_all
        gradient = log_probabilities.exp_()
        gradient -= label_smoothing / scores.shape[1]
        gradient *= of_questions[:, None]
        gradient.index_put_((rows, answers), (label_smoothing - 1) * weights, accumulate=True)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: BackwardContext, of_loss: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(of_loss), None, None, None, None  # in place: there is no second backward pass


def self_adversarial(
    gold_scores: Tensor, scores: Tensor, is_negative: Tensor, margin: float, temperature: float
) -> Tensor:
    """Logistic loss with a margin, weighing hard negatives more (Sun et al., 2019, Eq. 5).

    `gold_scores` is (queries,), `scores` and `is_negative` are (queries, sampled entities).
    """
    hardness = (temperature * scores).masked_fill(~is_negative, -torch.inf)
    # A query whose sampled entities are all true answers has no negatives, so its softmax is NaN.
    weights = hardness.softmax(dim=1).nan_to_num(0.0).detach()
    of_negatives = (weights * logsigmoid(-margin - scores)).sum(dim=1)
    return -(logsigmoid(margin + gold_scores) + of_negatives).mean() / 2


_QUESTIONS_AT_ONCE = 256
#: From so many entities, shuffling all of them takes longer than a batch.
_SHUFFLED = 100_000


def sample_entities(count: int, entity_count: int, generator: torch.Generator) -> Tensor:
    """Draw distinct entities for a whole batch to share, so that scoring them is one matrix product; shape (count,).

    Of very many entities, few are drawn twice: leaving those out is faster than to shuffle all, for a few less.
    """
    if entity_count < _SHUFFLED or count > entity_count // 100:
        return torch.randperm(entity_count, generator=generator)[:count]
    drawn: Tensor = torch.unique(torch.randint(entity_count, (count,), generator=generator))
    return drawn


def is_negative(sampled: Tensor, known: Candidates, entity_count: int) -> Tensor:
    """Which sampled entities are not known answers of each query; shape (queries, sampled).

    A true answer is never pushed down, which unfiltered sampling does all the time on small graphs.
    """
    place = torch.full((entity_count,), -1)
    place[sampled] = torch.arange(len(sampled))
    rows, places = torch.from_numpy(known.rows), place[torch.from_numpy(known.ids).long()]
    was_drawn = places >= 0
    negative = torch.ones(len(known), len(sampled), dtype=torch.bool)
    negative[rows[was_drawn], places[was_drawn]] = False
    return negative


def hard_negatives(earlier: Scorer | None, questions: Queries, known: KnownAnswers, count: int) -> Tensor:
    """The entities that an earlier tier ranks highest and that are not known answers; shape (questions, count).

    Those that people have rejected come first.
    """
    if earlier is None or count == 0:
        return torch.empty(len(questions), 0, dtype=torch.long)
    found = []
    for block in questions.blocks(_QUESTIONS_AT_ONCE):
        scores = torch.from_numpy(earlier.score_all(block).copy())
        for answers, score in ((rejected_answers(earlier, block), torch.inf), (known.of(block), -torch.inf)):
            scores[torch.from_numpy(answers.rows), torch.from_numpy(answers.ids).long()] = score
        found.append(scores.topk(min(count, scores.shape[1])).indices)
    return torch.cat(found)
