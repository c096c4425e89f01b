"""What valid chose for every row of a reproduction: `choice.json`, written before test is read and never changed."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cascader.display import emit
from cascader.errors import DataError
from cascader.runs.measurement import SumWeights, choose
from cascader.runs.reproduction_plan import ReproductionPlan, out_of_time
from cascader.runs.reproduction_state import ReproductionState, save_state
from cascader.runs.rows import ResolvedRow
from cascader.runs.run import Run
from cascader.scoring.engine import Engine
from cascader.storage import read_json, sha256_of, write_json

FORMAT = 1
_FILE = "choice.json"


@dataclass(frozen=True)
class RowChoice:
    """How a row is weighed: by which tiers, in which way, and by which file of the run's folder."""

    kind: str
    tiers: tuple[str, ...]
    weights: SumWeights
    top: int
    file: str | None  # the weights that valid chose, or the result of tuning; None: one tier has nothing to weigh
    sha256: str | None  # of that file
    inputs: str  # one sha256 of the models, the graph and the choice


@dataclass(frozen=True)
class Choices:
    """The choices of all rows, by name."""

    rows: Mapping[str, RowChoice]


def choose_rows(
    run: Run,
    rows: Sequence[ResolvedRow],
    plan: ReproductionPlan,
    state: ReproductionState,
    budget: float,
    engine: Engine | None,
) -> tuple[ReproductionState, Choices]:
    """Let valid choose for every row that there is time for, and write the choices down; once written, they stay."""
    path = run.folder.path / _FILE
    if path.exists():
        return state, _load(path, run)
    found: dict[str, RowChoice] = {}
    for each in rows:
        if not plan.has_time(each.row.kind, state.spent, budget):
            state = state.without(each.row.kind, out_of_time(plan.rows[each.row.kind].likely, budget - state.spent))
            continue
        started = time.monotonic()
        found[each.name] = _chosen(run, each, engine)
        state = state.with_seconds(f"choose {each.name}", time.monotonic() - started)
        save_state(state, run.folder)
    choices = Choices(found)
    save_state(state, run.folder)
    write_json(path, _as_dict(choices, run))
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


def _as_dict(choices: Choices, run: Run) -> dict[str, Any]:
    rows = {name: asdict(choice) for name, choice in choices.rows.items()}
    rows = {name: {**row, "tiers": list(row["tiers"])} for name, row in rows.items()}
    content = {"format": FORMAT, "data_hash": run.kg.data_hash, "rows": rows}
    return {**content, "sha256": _sha256_of(content)}


def _load(path: Path, run: Run) -> Choices:
    """Load the choices, which must be those that were written, of the same models and files."""
    saved = read_json(path)
    digest = saved.pop("sha256", None)
    if saved.get("format") != FORMAT or digest != _sha256_of(saved):
        raise DataError(f"{path} is not as it was written. Restore it, or reproduce again in another folder.")
    rows = {name: RowChoice(**{**row, "tiers": tuple(row["tiers"])}) for name, row in saved["rows"].items()}
    for name, row in rows.items():
        file = None if row.file is None else run.folder.path / row.file
        now = None if file is None or not file.exists() else sha256_of(file)
        if now != row.sha256 or _inputs(run, row.tiers, row.weights, row.top, now) != row.inputs:
            raise DataError(
                f"{path} says what valid chose for {name}, but {row.file or 'its models'} changed afterwards. Restore "
                "the files, or reproduce again in another folder."
            )
    return Choices(rows)
