"""The file from which an interrupted training goes on, read like a stranger's."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascader.errors import DataError
from cascader.models.files import DAMAGE, reason_of
from cascader.models.history import TrainingHistory
from cascader.records import conforming
from cascader.storage import json_value, read_tensors, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 2
#: The name of the file in a model's folder.
CHECKPOINT = "checkpoint.safetensors"
_ADVICE = "Remove it, and the same command starts that training again."


@dataclass(frozen=True)
class CheckpointHeader:
    """What a checkpoint says beside its tensors: what it was made with, and how far the training has come."""

    identity: Mapping[str, Any]
    progress: TrainingHistory


@dataclass(frozen=True)
class CheckpointParts:
    """The tensors of a checkpoint."""

    weights: "dict[str, Tensor]"
    optimizer: "dict[str, Tensor]"
    best: "dict[str, Tensor]"  # the weights that were best on valid; empty if none were validated
    epoch: "dict[str, Tensor]"  # what the rest of an epoch depends on; empty between two epochs

    def named(self) -> "dict[str, Tensor]":
        """All tensors with the part that they belong to."""
        return {f"{part}/{name}": tensor for part, named in vars(self).items() for name, tensor in named.items()}


@dataclass(frozen=True)
class Checkpoint:
    """A file to resume from; `identity` says which model, graph and settings it must have been made with."""

    path: Path
    identity: Mapping[str, Any]

    def save(self, tensors: "Mapping[str, Tensor]", progress: Mapping[str, Any]) -> None:
        """Write all tensors, and how far the training has come."""
        header = {"format": FORMAT, "identity": self.identity, "progress": progress}
        write_tensors(self.path, tensors, {"cascader": json.dumps(header, sort_keys=True)})

    def load(self) -> tuple[CheckpointParts, TrainingHistory] | None:
        """The tensors and the progress, or None if there is no checkpoint yet."""
        if not self.path.exists():
            return None
        tensors, metadata = read_tensors(self.path)
        header = self._header(metadata)
        self._check(header)
        parts: dict[str, dict[str, Tensor]] = {each.name: {} for each in fields(CheckpointParts)}
        for name, tensor in tensors.items():
            part, _, inner = name.partition("/")
            if part not in parts:
                raise DataError(f"{self.path} has a tensor {name[:100]!r}, expected {', '.join(parts)}. {_ADVICE}")
            parts[part][inner] = tensor
        return CheckpointParts(**parts), header.progress

    def saved_identity(self) -> Mapping[str, Any]:
        """What the file was made with; nothing if there is none yet."""
        return self._header(read_tensors(self.path)[1]).identity if self.path.exists() else {}

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Say that it is the checkpoint if a training cannot go on from what it holds."""
        try:
            yield
        except DAMAGE as error:
            raise DataError(f"{self.path} does not fit its training: {reason_of(error)}. {_ADVICE}") from error

    def _header(self, metadata: Mapping[str, str]) -> CheckpointHeader:
        try:
            saved = json_value(metadata.get("cascader", "{}"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path} is not a checkpoint: {error}. {_ADVICE}") from error
        if not isinstance(saved, dict):
            raise DataError(f"{self.path} is not a checkpoint: its header is no JSON object. {_ADVICE}")
        if saved.get("format") != FORMAT:
            raise DataError(
                f"{self.path} is a checkpoint of format {saved.get('format')!r}, expected {FORMAT}. It was written by "
                f"another version of cascader: use that version. {_ADVICE}"
            )
        header = conforming(saved, CheckpointHeader, self.path, _ADVICE)
        for each in fields(TrainingHistory):  # a model may have no history, but a checkpoint has all of it
            if each.name not in saved["progress"]:
                raise DataError(f"{self.path} has no progress.{each.name}. {_ADVICE}")
        return header

    def _check(self, header: CheckpointHeader) -> None:
        wanted, found = json.loads(json.dumps(self.identity)), header.identity
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise DataError(
                    f"{self.path} was made with {key} {found.get(key)!r}, but now it is {wanted.get(key)!r}. Choose "
                    "another folder, or remove the file to start over."
                )


def check_fits(parts: CheckpointParts, history: TrainingHistory, weights: "Mapping[str, Tensor]", steps: int) -> None:
    """Refuse tensors of other shapes than the weights have, and progress that contradicts itself.

    `steps` is the number of them in an epoch. torch would stretch a tensor of one number to any shape.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for part, tensors in (("weights", parts.weights), ("best", parts.best)):
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for name in sorted({*found, *shapes}) if found or part == "weights" else ():
            if found.get(name) != shapes.get(name):
                raise ValueError(f"{part}/{name} has shape {found.get(name)}, expected {shapes.get(name)}")
    partial = history.partial
    if len(history.losses) != history.epochs:
        raise ValueError(f"it has {len(history.losses)} losses of {history.epochs} epochs")
    if bool(history.valid) != bool(parts.best):
        raise ValueError("it has the best weights, or what valid says of them, but not both")
    if partial is None and parts.epoch:
        raise ValueError("it has the state of an epoch that has not begun")
    if partial is not None and not (0 < partial.steps < steps and partial.rows > 0):
        raise ValueError(f"it has {partial.steps} of {steps} steps of an epoch, with {partial.rows} rows")
