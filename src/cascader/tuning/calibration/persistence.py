"""Calibrations as a file: one for each cascade that was asked for probabilities."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascader.cascade import Cascade
from cascader.errors import DataError
from cascader.storage import read_json, write_json
from cascader.tuning import described
from cascader.tuning.calibration.calibration import Calibration

FORMAT = 2
#: Formats of earlier versions: they say less of the reliability, so that calibrations are made anew.
_EARLIER = (1,)
FILE = "calibration.json"


def hash_of_cascade(cascade: Cascade) -> str:
    """One sha256 for how the tiers come together: weights, pruners and what these have learnt; not for the models."""
    tiers = [cascade.name, *(described(tier) for tier in cascade.tiers)]
    digest = hashlib.sha256(json.dumps(tiers, sort_keys=True).encode())
    for tier in cascade.tiers:
        for name, array in sorted(tier.keep.tensors().items() if tier.keep is not None else ()):
            digest.update(f"{tier.name} {name}".encode() + array.tobytes())
    return digest.hexdigest()


def save_calibration(calibration: Calibration, folder: Path, identity: Mapping[str, str]) -> None:
    """Write it to `calibration.json`, beside those of other cascades of the same run."""
    others = [saved for saved in _saved(folder) if saved["identity"] != dict(identity)]
    entry = {"identity": dict(identity), **calibration.as_dict()}
    write_json(folder / FILE, {"format": FORMAT, "calibrations": [*others, entry]})


def load_calibration(folder: Path, identity: Mapping[str, str]) -> Calibration | None:
    """Read back what was saved for this cascade; None if there is nothing."""
    return next((Calibration.from_dict(saved) for saved in _saved(folder) if saved["identity"] == dict(identity)), None)


def _saved(folder: Path) -> list[dict[str, Any]]:
    if not (folder / FILE).exists():
        return []
    content = read_json(folder / FILE)
    if content.get("format") in _EARLIER:
        return []
    if content.get("format") != FORMAT:
        raise DataError(
            f"{folder / FILE} is of format {content.get('format')!r}, expected {FORMAT}. It was written by another "
            "version of cascader: use that one, or delete the file, and it is made anew."
        )
    return list(content["calibrations"])
