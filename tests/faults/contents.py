"""What must be equal after a fault: everything in a folder but times, and hashes over times."""

import json
import re
from pathlib import Path
from typing import Any

from cascader.storage import read_arrays, read_parquet

#: What is measured, how often something was tried, and commands, which name their folder.
_MEASURED = re.compile(r"\w*seconds\w*|\w*per_second|\w*reads|\w*bytes|time|likely|latest|command|again")
_HASH = re.compile(r"[0-9a-f]{12,64}")
#: Hashes that no time has a part in. Those of a tier are over its history, which says how long it was trained.
_LASTING = ("data_hash", "data")
_NOT_COMPARED = ("events.jsonl", "plan.json", "report.html")
#: The tables of a report are drawn from its numbers, which are compared: as text, their times cannot be left out.
_TABLES = "report/tables/*"


def contents_of(folder: Path) -> dict[str, object]:
    """The contents of every file by its name, weights, ranks and answers to the bit, and the scores of every pair."""
    files = {
        _without_hashes(path.relative_to(folder)): _content(path, folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _NOT_COMPARED and not path.name.startswith(".")
        if not path.match(_TABLES)
    }
    stored = [name for name in files if name.startswith("scores/")]
    return {name: content for name, content in files.items() if name not in stored} | _scores(folder)


def _scores(folder: Path) -> dict[str, object]:
    """The stored scores of each tier by pair, to the bit: what was damaged is read again, and stored in other files."""
    return {f"scores of {path.name}": _by_pair(path) for path in sorted((folder / "scores").glob("*"))}


def _by_pair(folder: Path) -> dict[int, float]:
    shards = [read_arrays(path) for path in folder.rglob("*.safetensors")]
    rows = (zip(shard["keys"].tolist(), shard["scores"].tolist(), strict=True) for shard in shards)
    return {key: score for some in rows for key, score in some}


def differences(ours: dict[str, object], theirs: dict[str, object]) -> list[str]:
    """The names of files that only one side has, or that differ."""
    names = {*ours, *theirs}
    return sorted(name for name in names if name not in ours or name not in theirs or ours[name] != theirs[name])


def _without_hashes(path: Path) -> str:
    return "/".join("HASH" if _HASH.fullmatch(part) else part for part in path.parts)


def _content(path: Path, folder: Path) -> object:
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text().replace(str(folder), "FOLDER")))
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return read_parquet(path)
    return path.read_bytes()


def _timeless(value: Any, key: str = "") -> object:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _timeless(each, name) for name, each in value.items() if not _MEASURED.fullmatch(name)}
    if isinstance(value, list):
        return [_timeless(each, key) for each in value]
    if isinstance(value, str) and _HASH.fullmatch(value) and key not in _LASTING:
        return "HASH"
    return value
