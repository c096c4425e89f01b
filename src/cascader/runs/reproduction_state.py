"""What a reproduction keeps in its folder: how far it has come, what valid chose for every row, and what was measured.

`choice.json` is written before test is read, and never changed afterwards.
"""

import hashlib
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Len, Predicate

from cascader.display import emit, html_table
from cascader.errors import DataError, SettingsError
from cascader.evaluation import Evaluation
from cascader.evaluation.comparison import published_mrr
from cascader.evaluation.metrics import CONFIDENCE
from cascader.records import Count, Name, Seconds, Sha256, TierName, is_tier_name, read_record, write_record
from cascader.runs.folder import RunFolder
from cascader.runs.measurement import SumWeights, choose
from cascader.runs.reproduction_plan import LeftOut, ReproductionPlan, emit_left_out, out_of_time
from cascader.runs.rows import ResolvedRow
from cascader.runs.run import Run
from cascader.scoring.engine import Engine
from cascader.storage import sha256_of

FORMAT = 2
_ADVICE = "Restore it, or reproduce again in another folder."
_STATE, _CHOICE = "reproduction.json", "choice.json"
_COLUMNS = ("row", "MRR", f"{CONFIDENCE:.0%} interval", "the paper's", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True)
class ReproductionState:
    """What was asked for and planned, the seconds that steps took, and in the end all rows."""

    request: Mapping[str, Any]
    command: str
    plan: ReproductionPlan | None = None
    training_seconds: Seconds = 0.0
    seconds: Mapping[str, Seconds] = field(default_factory=dict)  # by step: choosing and measuring
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)  # rows that the plan had, by kind
    test_reads: Mapping[str, Count] = field(default_factory=dict)  # how often test was read for a row, by its name
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
        return replace(self, test_reads={**self.test_reads, row: self.test_reads.get(row, 0) + 1})

    def without(self, row: str, why: LeftOut) -> "ReproductionState":
        """Return the state without a row that was planned."""
        return replace(self, left_out={**self.left_out, row: why})


def save_state(state: ReproductionState, folder: RunFolder) -> None:
    """Write `reproduction.json`."""
    write_record(folder.path / _STATE, {"format": FORMAT, **asdict(state)})


def load_state(folder: RunFolder, request: Mapping[str, Any]) -> ReproductionState | None:
    """Load what a reproduction with the same request has written; None if the folder is empty.

    A folder with anything else is refused.
    """
    path = folder.path / _STATE
    if not path.exists():
        _check_empty(folder)
        return None
    saved = read_record(path, ReproductionState, FORMAT, _ADVICE)
    _check_same(folder, saved, request)
    return replace(saved, request=request)


def _check_empty(folder: RunFolder) -> None:
    """Refuse a folder that holds something else; what is hidden, such as the lock, does not count."""
    if not folder.path.exists():
        return
    found = sorted(path.name for path in folder.path.iterdir() if not path.name.startswith("."))
    found = [name for name in found if name != "events.jsonl"]
    if found:
        what = "a run" if folder.is_complete or "tiers" in found else f"other files, such as {found[0]}"
        raise SettingsError(
            f"{folder.address} holds {what}, but no reproduction. Choose a new folder with --out, or an empty one."
        )


def _check_same(folder: RunFolder, saved: ReproductionState, request: Mapping[str, Any]) -> None:
    before = saved.request
    for name, wanted in sorted(request.items(), key=lambda item: isinstance(item[1], dict)):  # those above all first
        if before.get(name) != wanted:
            change = _difference(name, before.get(name), wanted)
            raise SettingsError(
                f"{folder.address} holds another reproduction: it was started with {change}. Choose another folder "
                f"with --out, or go on with the one there: {saved.command}"
            )


def _difference(name: str, before: object, wanted: object) -> str:
    """Say in which value two requests differ: preset 'best', while this one has 'quick'."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        for key in {**wanted, **before}:
            if before.get(key) != wanted.get(key):
                return _difference(f"{name}.{key}", before.get(key), wanted.get(key))
    return f"{name} {before!r}, while this one has {wanted!r}"


def is_file_of_a_choice(name: str) -> bool:
    """Whether a file of a run can hold how tiers are weighed: `tuning.json`, or one of a part of the run.

    >>> is_file_of_a_choice("parts/kge+dual/alpha.json"), is_file_of_a_choice("../tuning.json")
    (True, False)
    """
    if name == "tuning.json":
        return True
    parts, _, rest = name.removesuffix(".json").partition("/")
    tiers, *inner = rest.split("/")
    words = (*tiers.split("+"), *inner)
    return parts == "parts" and name.endswith(".json") and len(inner) in (1, 2) and all(map(is_tier_name, words))


@dataclass(frozen=True)
class RowChoice:
    """How a row is weighed: by which tiers, in which way, and by which file of the run's folder."""

    kind: Name
    tiers: Annotated[tuple[TierName, ...], Len(min_length=1)]
    weights: SumWeights
    top: Annotated[int, Ge(1)]
    #: The weights that valid chose, or the result of tuning; None: one tier has nothing to weigh.
    file: Annotated[str, Predicate(is_file_of_a_choice)] | None
    sha256: Sha256 | None  # of that file
    inputs: Sha256  # one sha256 of the models, the graph and the choice


@dataclass(frozen=True)
class Choices:
    """The choices of all rows, by name."""

    data_hash: str
    rows: Mapping[Name, RowChoice]


def choose_rows(
    run: Run,
    rows: Sequence[ResolvedRow],
    plan: ReproductionPlan,
    state: ReproductionState,
    budget: float,
    engine: Engine | None,
) -> tuple[ReproductionState, Choices]:
    """Let valid choose for every row that there is time for, and write the choices down; once written, they stay."""
    path = run.folder.path / _CHOICE
    if path.exists():
        return state, _load_choices(path, run, rows)
    found: dict[str, RowChoice] = {}
    for each in rows:
        if not plan.has_time(each.row.kind, state.spent, budget):
            state = state.without(each.row.kind, out_of_time(plan.rows[each.row.kind].likely, budget - state.spent))
            continue
        started = time.monotonic()
        found[each.name] = _chosen(run, each, engine)
        state = state.with_seconds(f"choose {each.name}", time.monotonic() - started)
        save_state(state, run.folder)
    choices = Choices(run.kg.data_hash, found)
    save_state(state, run.folder)
    write_record(path, {"format": FORMAT, **asdict(choices)})
    emit("chosen", f"What valid chose is written to {path}; from now on, test is read, once for each row.")
    return state, choices


def _chosen(run: Run, each: ResolvedRow, engine: Engine | None) -> RowChoice:
    """Let valid choose for one row; a choice that the run's folder has already is taken from there."""
    top = each.row.top(len(run.kg.entities))
    file = choose(run, each.tiers, each.row.weights, top, engine)
    digest = None if file is None else sha256_of(file)
    name = None if file is None else file.relative_to(run.folder.path).as_posix()
    inputs = _inputs(run, each.tiers, each.row.weights, top, digest)
    return RowChoice(each.row.kind, each.tiers, each.row.weights, top, name, digest, inputs)


def _inputs(run: Run, tiers: Sequence[str], weights: str, top: int, digest: str | None) -> str:
    """Hash all that the ranks of a row depend on."""
    hashes = {tier: run.folder.tier_hash(tier) for tier in tiers}
    return _sha256_of({"data": run.kg.data_hash, "tiers": hashes, "weights": weights, "top": top, "choice": digest})


def _sha256_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _load_choices(path: Path, run: Run, rows: Sequence[ResolvedRow]) -> Choices:
    """Load the choices, which must be those that were written, of the same models and files."""
    choices, kinds = read_record(path, Choices, FORMAT, _ADVICE), {each.name: each.row.kind for each in rows}
    for name, row in choices.rows.items():
        if kinds.get(name) != row.kind:
            raise DataError(f"{path} has a row {name[:100]!r}, which this reproduction has not. {_ADVICE}")
        file = None if row.file is None else run.folder.path / row.file
        now = None if file is None or not file.is_file() else sha256_of(file)
        if now != row.sha256 or _inputs(run, row.tiers, row.weights, row.top, now) != row.inputs:
            raise DataError(
                f"{path} says what valid chose for {name}, but {row.file or 'its models'} changed afterwards. Restore "
                "the files, or reproduce again in another folder."
            )
    return choices


@dataclass(frozen=True, eq=False)
class ReproducedRow:
    """A row of the table: its evaluation, or why there is none."""

    name: str
    choice: RowChoice | None
    evaluation: Evaluation | None
    left_out: LeftOut | None

    @property
    def cells(self) -> list[str]:
        """The row as it is printed."""
        if self.evaluation is None:
            return [self.name, "" if self.left_out is None else self.left_out.status, *[""] * (len(_COLUMNS) - 2)]
        published = published_mrr(self.evaluation.dataset, self.name)
        return [
            self.name,
            f"{self.evaluation.mrr:.4f}",
            "{:.4f} to {:.4f}".format(*self.evaluation.intervals["mrr"]),
            "" if published is None else f"{published:.4f}",
            *(f"{self.evaluation.metrics[metric]:.4f}" for metric in ("hits@1", "hits@3", "hits@10")),
        ]

    def as_dict(self, folder: Path) -> dict[str, Any]:
        """Describe the row for `reproduction.json`."""
        if self.evaluation is None or self.choice is None:
            return {"name": self.name, **({} if self.left_out is None else vars(self.left_out))}
        return {
            "name": self.name,
            "status": "measured",
            "mrr": self.evaluation.mrr,
            "interval": list(self.evaluation.intervals["mrr"]),
            "published": published_mrr(self.evaluation.dataset, self.name),
            "file": f"results/{self.name}.json",
            "again": _evaluate_command(self.name, self.choice, folder),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction:
    """The rows of a reproduction, in the order of the table; `found["cascade"]` is a row's evaluation."""

    folder: Path
    rows: Sequence[ReproducedRow]
    report: Path | None  # the page; None: nothing was measured

    def __repr__(self) -> str:
        return "\n".join("  ".join(row) for row in (_COLUMNS, *(row.cells for row in self.rows)))

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, [row.cells for row in self.rows], f"{self.folder}")

    def __getitem__(self, name: str) -> Evaluation:
        for row in self.rows:
            if row.name == name and row.evaluation is not None:
                return row.evaluation
        raise DataError(f"{self.folder} has no result {name!r}. It has: {', '.join(self.evaluations)}.")

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """What was measured, by name."""
        return {row.name: row.evaluation for row in self.rows if row.evaluation is not None}

    @property
    def left_out(self) -> Mapping[str, LeftOut]:
        """Why rows are missing, by kind."""
        return {row.name: row.left_out for row in self.rows if row.left_out is not None}

    def emit(self) -> None:
        """Report the table, what is missing, and where everything is."""
        emit("table", f"Reproduced in {self.folder}:", _COLUMNS, [row.cells for row in self.rows])
        emit_left_out(self.left_out)
        pages = "" if self.report is None else f", and the report to {self.report}"
        emit("written", f"Written to {self.folder / 'reproduction.json'}{pages}.")


def _evaluate_command(name: str, choice: RowChoice, folder: Path) -> str:
    """The command that measures the row again, from the models in the folder, and writes it elsewhere."""
    words = ["cascader", "evaluate", str(folder), "--tiers", ",".join(choice.tiers), "--weights", choice.weights]
    return shlex.join([*words, "--top", str(choice.top), "--name", name, "--out", str(folder / "again")])
