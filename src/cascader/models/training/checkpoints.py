"""A training's state in one file, written whole or not at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from cascader.errors import DataError
from cascader.storage import read_tensors, write_tensors

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """A file to go on from, and what it must have been made with: `identity` names model, graph and settings.

    A file from before a setting existed was made with that setting's default, in `defaults`.
    """

    path: Path
    identity: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Write all tensors, and how far the training has come."""
        header = {"format": FORMAT, "identity": self.identity, "progress": progress}
        write_tensors(self.path, tensors, {"cascader": json.dumps(header, sort_keys=True)})

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and the progress, or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        tensors, metadata = read_tensors(self.path)
        try:
            header = json.loads(metadata.get("cascader", "{}"))
        except ValueError as error:
            raise DataError(f"{self.path} is no checkpoint: {error}. Delete it to start anew.") from error
        self._check(header)
        return tensors, header["progress"]

    def _check(self, header: Mapping[str, Any]) -> None:
        if header.get("format") != FORMAT:
            raise DataError(
                f"{self.path} is a checkpoint of format {header.get('format')}, expected {FORMAT}. It was written by "
                "another version of cascader: use that one, or delete the file to start anew."
            )
        wanted = json.loads(json.dumps(self.identity))
        assumed = {name: value for name, value in self.defaults.items() if name in wanted}
        found = json.loads(json.dumps({**assumed, **header["identity"]}))
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise DataError(
                    f"{self.path} was made with {key} {found.get(key)!r}, but now it is {wanted.get(key)!r}. Name "
                    "another folder, or delete the file to start anew."
                )
