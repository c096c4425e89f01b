"""What `run.json` says of a run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Len

from cascader.errors import DataError
from cascader.records import FileSum, Sha256, TierName


@dataclass(frozen=True)
class RunRecord:
    """What `run.json` says of a run: what it was fitted to, and the sum of every file of its graph and its tiers.

    These files never change once they are listed, and `run.json` is written after them. What a run gains later
    (tuning, calibration, stored scores, results) carries its own sums: after a kill, none can be out of step.
    """

    dataset: str
    data_hash: Sha256
    preset: str
    tiers: Annotated[dict[TierName, str], Len(min_length=1)]  # the kind of each tier, in order
    files: dict[str, FileSum]  # of the graph and the tiers, by their names in the folder
    versions: dict[str, str]
    apart: tuple[TierName, ...] = ()  # trained to be compared with the others, and no part of the run's cascade
    coming: tuple[TierName, ...] = ()  # still to be trained: until then, the run answers with the tiers that are there

    def __post_init__(self) -> None:
        strangers = [name for name in self.apart if name not in self.tiers]
        if strangers or len(self.apart) >= len(self.tiers):
            raise DataError(f"apart is {list(self.apart)}, expected some of the tiers: {', '.join(self.tiers)}.")

    @property
    def identity(self) -> str:
        """One sha256 for the graph and the tiers: another one if the run is fitted again."""
        lines = (f"{found.sha256} {name}\n" for name, found in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def parts_of(tiers: Mapping[str, str]) -> list[str]:
    """The folders of a run whose files never change once they are listed."""
    return ["graph", *(f"tiers/{name}" for name in tiers)]
