"""Reproduce the tables on one graph from nothing: plan, train, let valid choose, write the choice down, read test once.

Each step leaves its result in the folder, so that the same call goes on wherever it was interrupted.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cascader.datasets import load_graph
from cascader.display import Listener, emit, listening, recording
from cascader.errors import DataError, SettingsError
from cascader.evaluation import Evaluation
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.models.device import current_device, training_with, using_device
from cascader.runs.fit import train_tiers
from cascader.runs.folder import RunFolder
from cascader.runs.plan import FitPlan, load_plan, save_plan
from cascader.runs.reproduction_plan import (
    LeftOut,
    ReproductionPlan,
    emit_reproduction_plan,
    out_of_time,
    plan_reproduction,
)
from cascader.runs.reproduction_state import (
    Choices,
    ReproducedRow,
    Reproduction,
    ReproductionState,
    RowChoice,
    choose_rows,
    load_state,
    save_state,
)
from cascader.runs.request import FitRequest, fit_request
from cascader.runs.rows import EMBEDDINGS, PAPER_TIERS, ROWS, ResolvedRow, resolve
from cascader.runs.run import Run, load_run
from cascader.scoring.engine import Engine
from cascader.scoring.ray_engine import check_engine

_STRUCTURE = ("plausibility", "rules", "similarity")
#: The tiers that read texts, and their kinds.
_TEXT = {"dual": "dual", "dual2": "dual", "dual3": "context", "late": "late", "cross": "cross", "cross2": "cross"}
_NO_TEXTS = "the graph has no texts for a language model to read"


@dataclass(frozen=True)
class ReproductionRequest:
    """What a call of `reproduce` asks for."""

    fit: FitRequest
    absent: Mapping[str, str]  # why a tier is not requested at all
    command: str

    def as_dict(self) -> dict[str, Any]:
        """Return what makes two requests the same."""
        hours = self.fit.budget / 3600 if self.fit.has_budget else None
        return {"max_hours": hours, **{name: of for name, of in self.fit.as_dict().items() if name != "budget"}}


def reproduce(
    graph: KnowledgeGraph | str | Path,
    out: str | Path | None = None,
    *,
    preset: str = "best",
    max_hours: float | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    device: str | None = None,
    training_processes: int | None = None,
    engine: Engine | None = None,
    on_event: Listener | None = None,
) -> Reproduction:
    """Train all tiers, let valid choose, and measure every row of the tables on test; the same call goes on.

    The rows are the paper's baselines, ensembles and cascade, and ours. A row or a training that does not fit into
    `max_hours` is left out as "OOT", with the reason. What valid chose is written to `choice.json` before test is read,
    and a row that was measured is never read again. `out` is a run's folder; `settings` changes those of the preset,
    by tier: kge to kge4 are ComplEx, RotatE, RESCAL and TransE, dual2 is StAR, dual3 the context encoder, and cross2
    KG-BERT. `device` and `training_processes` are those of `fit`.

    >>> import tempfile
    >>> from cascader import KnowledgeGraph, reproduce
    >>> facts = [(f"{i}", "treats", f"{j}") for i in range(6) for j in range(6)]
    >>> kg = KnowledgeGraph.from_triples(facts[:28], valid=facts[28:32], test=facts[32:])
    >>> small = {tier: {"dim": 4, "epochs": 2} for tier in ("kge", "kge2", "kge3", "kge4")}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(kg, folder, preset="quick", settings=small)
    >>> list(found.evaluations)[:2], found.left_out["cascade"].reason
    (['kge-complex', 'kge-rotate'], 'it needs the tier cross: the graph has no texts for a language model to read')
    """
    request = reproduction_request(graph, preset=preset, max_hours=max_hours, settings=settings, seed=seed)
    folder = RunFolder(out or default_folder(request))
    request = replace(request, command=_command(graph, folder, preset, max_hours, settings, seed))
    with listening(on_event), using_device(device), training_with(training_processes):
        return reproduce_requested(request, folder, engine)


def reproduction_request(
    graph: KnowledgeGraph | str | Path,
    *,
    preset: str = "best",
    max_hours: float | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    command: str = "",
) -> ReproductionRequest:
    """Check what is asked for, so that errors show before anything trains."""
    if max_hours is not None and not max_hours > 0:
        raise SettingsError(f"max_hours is {max_hours}, expected more than 0 hours, such as 3 or 0.5.")
    kg = graph if isinstance(graph, KnowledgeGraph) else load_graph(graph)
    _check_splits(kg)
    tiers = reproduction_tiers(kg)
    absent = {tier: _NO_TEXTS for tier in _TEXT if tier not in tiers}
    asked = {tier: of for tier, of in (settings or {}).items() if of}
    fixed = {tier: {**asked.get(tier, {}), **of} for tier, of in PAPER_TIERS.items() if tier in tiers}
    fit = fit_request(
        kg,
        preset=preset,
        budget=None if max_hours is None else max_hours * 3600,
        tiers=[*_STRUCTURE, *EMBEDDINGS.values(), *(_TEXT[tier] for tier in _TEXT if tier in tiers)],
        settings={**asked, **fixed},
        seed=seed,
    )
    limits = {tier: list(EMBEDDINGS) for tier in fixed}
    return ReproductionRequest(replace(fit, only_beside=limits), absent, command)


def reproduction_tiers(kg: KnowledgeGraph) -> list[str]:
    """Return the tiers that are trained if there is time: those that read texts only where there are texts."""
    from cascader.models.text.text_model import has_texts

    return [*_STRUCTURE, *EMBEDDINGS, *(_TEXT if has_texts(kg) else ())]


def default_folder(request: ReproductionRequest) -> Path:
    """Name the folder by graph and preset: runs/repodb/reproduce-best."""
    return Path("runs") / request.fit.kg.name / f"reproduce-{request.fit.preset}"


def plan_requested(request: ReproductionRequest, folder: RunFolder) -> ReproductionPlan:
    """Return the plan that the folder has for this request, or a new one, and write nothing."""
    state = load_state(folder, request.as_dict())
    return plan_reproduction(request.fit, request.absent)[0] if state is None or state.plan is None else state.plan


def reproduce_requested(request: ReproductionRequest, folder: RunFolder, engine: Engine | None = None) -> Reproduction:
    """Carry out a request in a locked folder; what an earlier process has done is not done again."""
    check_engine(engine, str(current_device()))
    with folder.locked(), recording(folder.log()):
        state = load_state(folder, request.as_dict()) or ReproductionState(request.as_dict(), request.command)
        save_state(state, folder)
        state, plan, fit_plan = _planned(state, request, folder)
        if not plan.rows:
            return _finish(state, plan, Choices(request.fit.kg.data_hash, {}), {}, folder, engine)
        fit_plan = _trained(fit_plan, request.fit, folder, engine)
        run = load_run(folder.address)
        state = replace(state, training_seconds=sum(tier.actual_seconds or 0 for tier in fit_plan.tiers.values()))
        state, choices = choose_rows(run, _resolved(run, plan), plan, state, request.fit.budget, engine)
        state, evaluations = _measured(run, plan, choices, state, request, engine)
        return _finish(state, plan, choices, evaluations, folder, engine)


def _planned(
    state: ReproductionState, request: ReproductionRequest, folder: RunFolder
) -> tuple[ReproductionState, ReproductionPlan, FitPlan]:
    """Find the plan that was made, or make it and write it down."""
    folder.save_graph(request.fit.kg)
    fit_plan = load_plan(folder.path, request.fit.as_dict())
    if state.plan is not None and fit_plan is not None:
        if not state.is_finished:
            emit("resumed", f"Going on with the reproduction in {folder.address}.")
        return state, state.plan, fit_plan
    plan, fit_plan = plan_reproduction(request.fit, request.absent)
    save_plan(fit_plan, folder.path)
    state = replace(state, plan=plan)
    save_state(state, folder)
    emit_reproduction_plan(plan, request.fit)
    return state, plan, fit_plan


def _trained(plan: FitPlan, request: FitRequest, folder: RunFolder, engine: Engine | None) -> FitPlan:
    """Train the tiers unless all of them are; the paper's language models stand apart from our cascade."""
    if not folder.is_complete:
        plan = train_tiers(plan, request, folder, engine)
        kinds = {tier: request.kinds[tier] for tier in plan.tiers}
        folder.mark_complete(request.kg, plan.presets, kinds, [tier for tier in PAPER_TIERS if tier in kinds])
    return plan


def _resolved(run: Run, plan: ReproductionPlan) -> list[ResolvedRow]:
    """Name the planned rows and their tiers, now that valid says which embeddings are best."""
    valid_mrr = {tier: run.tiers[tier].history_.best_valid or 0.0 for tier in EMBEDDINGS if tier in run.tiers}
    return [resolve(row, list(run.tiers), valid_mrr) for row in ROWS if row.kind in plan.rows]


def _measured(
    run: Run,
    plan: ReproductionPlan,
    choices: Choices,
    state: ReproductionState,
    request: ReproductionRequest,
    engine: Engine | None,
) -> tuple[ReproductionState, dict[str, Evaluation]]:
    """Read test once for each row that was chosen; a row that was measured before is loaded."""
    found: dict[str, Evaluation] = {}
    for name, choice in choices.rows.items():
        path = run.folder.path / "results" / f"{name}.json"
        evaluation = _found(path, choice.inputs)
        if evaluation is None and not plan.has_time(choice.kind, state.spent, request.fit.budget):
            left = request.fit.budget - state.spent
            state = state.without(choice.kind, out_of_time(plan.rows[choice.kind].likely, left))
            continue
        if evaluation is None:
            state = state.with_read(name)
            save_state(state, run.folder)  # before test is read: an interruption does not hide it
            evaluation = _measure(run, name, choice, request.command, engine)
            state = state.with_seconds(f"measure {name}", evaluation.seconds)
            save_state(state, run.folder)
        found[name] = evaluation
    return state, found


def _measure(run: Run, name: str, choice: RowChoice, command: str, engine: Engine | None) -> Evaluation:
    """Read test for one row, and save its result with the command and a hash of what it was made from."""
    emit("reading", f"Reading test for {name}.")
    measured = run.evaluate(tiers=choice.tiers, weights=choice.weights, top=choice.top, name=name, engine=engine)
    evaluation = replace(measured, command=command, about={**measured.about, "inputs": choice.inputs})
    evaluation.save(run.folder.path / "results")
    emit("measured", f"Measured {name}: MRR {evaluation.mrr:.4f}.")
    return evaluation


def _found(path: Path, inputs: str) -> Evaluation | None:
    """Load a result that was made from the same models and the same choice."""
    if not path.exists():
        return None
    evaluation = Evaluation.load(path)
    return evaluation if evaluation.about.get("inputs") == inputs else None


def _finish(
    state: ReproductionState,
    plan: ReproductionPlan,
    choices: Choices,
    evaluations: Mapping[str, Evaluation],
    folder: RunFolder,
    engine: Engine | None,
) -> Reproduction:
    """Write the report and `reproduction.json`, and report the table."""
    page = folder.path / "report" / "report.html"
    if evaluations and not (state.is_finished and page.exists()):
        load_run(folder.address).report(engine=engine)
    left_out = {**plan.rows_left_out, **state.left_out}
    rows = [_row(row.kind, choices, evaluations, left_out) for row in ROWS]
    done = Reproduction(folder.path, rows, page if page.exists() else None)
    save_state(replace(state, is_finished=True, rows=[row.as_dict(folder.path) for row in rows]), folder)
    done.emit()
    return done


def _row(
    kind: str, choices: Choices, evaluations: Mapping[str, Evaluation], left_out: Mapping[str, LeftOut]
) -> ReproducedRow:
    """Find what became of a row."""
    for name, choice in choices.rows.items():
        if choice.kind == kind and name in evaluations:
            return ReproducedRow(name, choice, evaluations[name], None)
    return ReproducedRow(kind, None, None, left_out[kind])


def _check_splits(kg: KnowledgeGraph) -> None:
    for split in SPLITS:
        if len(kg.split(split)) == 0:
            raise DataError(
                f"{kg.name} has no {split} triples, but a reproduction trains on train, chooses on valid and measures "
                "on test. Add them, or have some triples held out."
            )


def _command(
    graph: KnowledgeGraph | str | Path,
    folder: RunFolder,
    preset: str,
    max_hours: float | None,
    settings: Mapping[str, Mapping[str, Any]] | None,
    seed: int,
) -> str:
    """Write a call as the command line that does the same."""
    name = graph.name if isinstance(graph, KnowledgeGraph) else str(graph)
    changes = [f"{tier}.{key}={value}" for tier, of in (settings or {}).items() for key, value in of.items()]
    words = ["cascader", "reproduce", name, "--preset", preset]
    words += [] if max_hours is None else ["--max-hours", f"{max_hours:g}"]
    words += [part for change in changes for part in ("--set", change)]
    words += ["--seed", str(seed), "--out", folder.address]
    return shlex.join(words)
