"""What must be equal after a fault: everything in a folder but times, and hashes over times."""

import json
import re
from pathlib import Path
from typing import Any

from cascader.storage import read_parquet

#: What is measured, how often something was tried, and commands, which name their folder.
_MEASURED = re.compile(r"seconds|^time$|likely|latest|share|per_second|reads$|^command$|^again$|^peak_memory_bytes$")
_HASH = re.compile(r"[0-9a-f]{12,64}")
#: Hashes that no time has a part in. Those of a tier are over its history, which says how long it was trained.
_LASTING = ("data_hash", "data")
_NOT_COMPARED = ("events.jsonl", "plan.json", "report.html")


def contents_of(folder: Path) -> dict[str, object]:
    """The contents of every file by its name, weights, scores, ranks and answers to the bit."""
    return {
        _without_hashes(path.relative_to(folder)): _content(path, folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _NOT_COMPARED and not path.name.startswith(".")
    }


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
        return {name: _timeless(each, name) for name, each in value.items() if not _MEASURED.search(name)}
    if isinstance(value, list):
        return [_timeless(each, key) for each in value]
    if isinstance(value, str) and _HASH.fullmatch(value) and key not in _LASTING:
        return "HASH"
    return value
