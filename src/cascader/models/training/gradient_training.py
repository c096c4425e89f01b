"""The half of a `Trainable` that does not depend on the model: the weights, the optimizer and the mean loss."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class GradientTraining(ABC):
    """Trains named parameters with an optimizer; a subclass says what a step and a validation are."""

    def __init__(self, parameters: Mapping[str, Tensor], optimizer: Optimizer) -> None:
        self._parameters, self._optimizer = parameters, optimizer

    @abstractmethod
    def steps(self, epoch: int) -> Iterator[tuple[float, int]]:
        """Train an epoch batch by batch, and yield the loss and the size of each batch."""

    @property
    @abstractmethod
    def step_count(self) -> int:
        """The number of batches in an epoch."""

    @abstractmethod
    def validate(self) -> float | None:
        """The quality of the current weights on valid; None if there is nothing to validate on."""

    def train_epoch(self, epoch: int) -> float:
        """Train one epoch, and return the mean loss."""
        total, count = 0.0, 0
        for loss, size in self.steps(epoch):
            total += loss * size
            count += size
            if not math.isfinite(total):
                break  # the loop raises
        return total / count

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
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in saved.items():
            number, _, inner = name.partition(".")
            states.setdefault(int(number), {})[inner] = value
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": states})


def trainable_parameters(modules: nn.Module) -> dict[str, Tensor]:
    """The parameters of `modules` that are to be trained, by name."""
    return {name: parameter for name, parameter in modules.named_parameters() if parameter.requires_grad}
