"""How far a reproduction has come: `reproduction.json` in its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cascader.errors import DataError, SettingsError
from cascader.runs.folder import RunFolder
from cascader.runs.reproduction_plan import LeftOut, ReproductionPlan
from cascader.storage import read_json, write_json

FORMAT = 1
_FILE = "reproduction.json"


@dataclass(frozen=True)
class ReproductionState:
    """What was asked for and planned, the seconds that steps took, and in the end all rows."""

    request: Mapping[str, Any]
    command: str
    plan: ReproductionPlan | None = None
    training_seconds: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)  # by step: choosing and measuring
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)  # rows that the plan had, by kind
    reads: Mapping[str, int] = field(default_factory=dict)  # how often test was read for a row, by its name
    rows: Sequence[Mapping[str, Any]] = ()
    is_finished: bool = False

    @property
    def spent(self) -> float:
        """The seconds that everything took so far; what an interruption lost is not counted."""
        planning = 0.0 if self.plan is None else self.plan.planning_seconds
        return planning + self.training_seconds + sum(self.seconds.values())

    def with_seconds(self, step: str, seconds: float) -> "ReproductionState":
        """Return the state with the seconds that a step took."""
        return replace(self, seconds={**self.seconds, step: round(seconds, 3)})

    def with_read(self, row: str) -> "ReproductionState":
        """Return the state in which test is read for a row, once more if it was interrupted before."""
        return replace(self, reads={**self.reads, row: self.reads.get(row, 0) + 1})

    def without(self, row: str, why: LeftOut) -> "ReproductionState":
        """Return the state without a row that was planned."""
        return replace(self, left_out={**self.left_out, row: why})


def save_state(state: ReproductionState, folder: RunFolder) -> None:
    """Write `reproduction.json`."""
    write_json(
        folder.path / _FILE,
        {
            "format": FORMAT,
            "command": state.command,
            "request": dict(state.request),
            "plan": None if state.plan is None else state.plan.as_dict(),
            "training_seconds": state.training_seconds,
            "seconds": dict(state.seconds),
            "left_out": {name: vars(why) for name, why in state.left_out.items()},
            "test_reads": dict(state.reads),
            "rows": list(state.rows),
            "is_finished": state.is_finished,
        },
    )


def load_state(folder: RunFolder, request: Mapping[str, Any]) -> ReproductionState | None:
    """Load what a reproduction with the same request has written; None if the folder is empty.

    A folder with anything else is refused.
    """
    path = folder.path / _FILE
    if not path.exists():
        _check_empty(folder)
        return None
    saved = read_json(path)
    if saved.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {saved.get('format')!r}, expected {FORMAT}: another version of cascader wrote it. "
            "Choose another folder with --out."
        )
    _check_same(folder, saved, request)
    return ReproductionState(
        request=request,
        command=saved["command"],
        plan=None if saved["plan"] is None else ReproductionPlan.from_dict(saved["plan"]),
        training_seconds=saved["training_seconds"],
        seconds=saved["seconds"],
        left_out={name: LeftOut(**why) for name, why in saved["left_out"].items()},
        reads=saved["test_reads"],
        rows=saved["rows"],
        is_finished=saved["is_finished"],
    )


def _check_empty(folder: RunFolder) -> None:
    """Refuse a folder that holds something else; what is hidden, such as the lock, does not count."""
    if not folder.path.exists():
        return
    found = sorted(path.name for path in folder.path.iterdir() if not path.name.startswith("."))
    found = [name for name in found if name != "events.jsonl"]
    if found:
        what = "a run" if folder.is_complete or "tiers" in found else f"other files, such as {found[0]}"
        raise SettingsError(
            f"{folder.path} holds {what}, but no reproduction. Choose a new folder with --out, or an empty one."
        )


def _check_same(folder: RunFolder, saved: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    before = saved.get("request") or {}
    for name, wanted in sorted(request.items(), key=lambda item: isinstance(item[1], dict)):  # those above all first
        if before.get(name) != wanted:
            change = _difference(name, before.get(name), wanted)
            raise SettingsError(
                f"{folder.path} holds another reproduction: it was started with {change}. Choose another folder with "
                f"--out, or go on with the one there: {saved.get('command')}"
            )


def _difference(name: str, before: object, wanted: object) -> str:
    """Say in which value two requests differ: preset 'best', while this one has 'quick'."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        for key in {**wanted, **before}:
            if before.get(key) != wanted.get(key):
                return _difference(f"{name}.{key}", before.get(key), wanted.get(key))
    return f"{name} {before!r}, while this one has {wanted!r}"
