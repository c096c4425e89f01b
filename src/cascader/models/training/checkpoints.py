"""The state of a training in one file, which is either complete or not there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascader.errors import DataError
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
