"""An optimizer's memory as named tensors, so that a checkpoint can hold it without pickle."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer


def memory_of(optimizer: Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers of each weight, by the weight's number and the memory's name."""
    states = optimizer.state_dict()["state"]
    return {f"{i}.{name}": torch.as_tensor(value) for i, state in states.items() for name, value in state.items()}


def restore_memory(optimizer: Optimizer, memory: Mapping[str, Tensor]) -> None:
    """Give an optimizer back what `memory_of` has taken."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in memory.items():
        number, _, inner = name.partition(".")
        states.setdefault(int(number), {})[inner] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
