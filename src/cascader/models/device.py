"""What of a machine is used: the one choice of a device, and the number of processes that train.

A device is a property of the machine, not of the model: it is no setting, it is in no file, and a run that was trained
on a GPU loads on a laptop. It is asked for where a model is fitted or loaded; from then on, everything follows the
tensors of the model.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from cascader.errors import SettingsError
from cascader.graph import Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

VARIABLE = "CASCADER_DEVICE"
#: Not "auto": whoever has a GPU asks for it.
DEFAULT = "cpu"
_FORMS = "auto, cpu, cuda, cuda:N (the GPU of that number) or mps"

_MOST_PROCESSES = 1024

_processes: ContextVar[int] = ContextVar("training_processes", default=1)
_chosen: "ContextVar[torch.device | None]" = ContextVar("device", default=None)


@contextmanager
def using_device(device: "str | torch.device | None") -> "Iterator[torch.device]":
    """Fit and load models on a device: "auto", "cpu", "cuda", "cuda:1" or "mps"; None leaves the choice as it is.

    What was fitted or loaded stays there, also after the `with` block.

    >>> from cascader import ComplEx, KnowledgeGraph, using_device
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> with using_device("auto"):
    ...     model = ComplEx(dim=4, epochs=2).fit(kg)
    >>> model.score_all(kg.query("aspirin", "treats")).shape
    (1, 4)
    """
    chosen = current_device() if device is None else find_device(device)
    token = _chosen.set(chosen)
    try:
        yield chosen
    finally:
        _chosen.reset(token)


def current_device() -> "torch.device":
    """The device that models are fitted and loaded on: what was chosen, else what CASCADER_DEVICE names, else cpu."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    asked = os.environ.get(VARIABLE, "").strip()
    return find_device(asked, VARIABLE) if asked else find_device(DEFAULT)


def find_device(asked: "str | torch.device", what: str = "device") -> "torch.device":
    """The device of that name; an error if there is no such device here."""
    import torch

    if isinstance(asked, torch.device):
        return asked
    there = _devices()
    name = asked.strip().lower()
    if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", name):
        raise SettingsError(f"{what} is {asked!r}, expected {_FORMS}. This machine has: {', '.join(there)}.")
    if name == "auto":
        name = next((kind for kind in ("cuda:0", "mps") if kind in there), "cpu")
    full = "cuda:0" if name == "cuda" else name
    if full not in there:
        raise SettingsError(
            f"{what} is {asked!r}, but torch {torch.__version__} finds only: {', '.join(there)}. Choose one of these, "
            "or auto; for a GPU that is not listed, install the build of torch that is made for it, and its driver."
        )
    return torch.device(full)


def _devices() -> list[str]:
    """The devices of this machine by name."""
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


@contextmanager
def training_with(processes: int | None) -> Iterator[None]:
    """Train language models with so many processes of this machine; None leaves the choice as it is."""
    if processes is not None and not 1 <= processes <= _MOST_PROCESSES:
        raise SettingsError(f"training_processes is {processes}, expected from 1 to {_MOST_PROCESSES:,}.")
    token = _processes.set(_processes.get() if processes is None else processes)
    try:
        yield
    finally:
        _processes.reset(token)


def training_processes() -> int:
    """The number of processes that language models are trained with."""
    return _processes.get()


def to_device(array: Array, device: "torch.device") -> "Tensor":
    """An array as a tensor on a device."""
    import torch

    return torch.from_numpy(array).to(device)


# Dropout draws from the generator of the device that it is on.


@contextmanager
def forked_rng(device: "torch.device") -> Iterator[None]:
    """Leave torch's global generators as they were, whatever is drawn from those of the CPU and of the device."""
    import torch

    with torch.random.fork_rng(devices=[]):
        before = None if device.type == "cpu" else rng_state(device)
        try:
            yield
        finally:
            if before is not None:
                set_rng_state(device, before)


def rng_state(device: "torch.device") -> "Tensor":
    """The state of a device's global generator."""
    import torch

    if device.type in ("cpu", "mps"):
        return torch.get_rng_state() if device.type == "cpu" else torch.mps.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_rng_state(device: "torch.device", state: "Tensor") -> None:
    """The inverse of `rng_state`."""
    import torch

    if device.type in ("cpu", "mps"):
        (torch if device.type == "cpu" else torch.mps).set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)
