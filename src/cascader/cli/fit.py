"""`cascader fit` and `cascader reproduce`: train the tiers of a graph, and measure every row of the tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cascader.cli.options import (
    Clock,
    OpenedGraph,
    command_line,
    parsed_settings,
    with_device_option,
    with_engine_options,
    with_graph_options,
)
from cascader.display import emit
from cascader.errors import SettingsError
from cascader.paths import resolved

if TYPE_CHECKING:
    from cascader.scoring.engine import Engine

TiersOption = Annotated[
    str,
    typer.Option(
        "--tiers",
        help="Which tiers to train, separated by commas: plausibility, rules, similarity, kge (an embedding), dual, "
        "late and cross (language models), or a model by name, such as rotate. [default: all that the graph's texts "
        "allow]",
    ),
]
ModelOption = Annotated[
    str,
    typer.Option("--model", help="The embedding: rescal, transe, complex or rotate; or several, separated by commas."),
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", help="quick, balanced or best. [default: what --budget has time for, or quick]"),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="How long training, tuning and calibration may take in total: 90s, 30m, 2h."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, as in --set dim=100 or --set dual.dim=100; repeatable."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="The random seed for the first weights and the batches of every tier.")
]
TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials", help="Try this many variations of the settings, and keep the best on valid; needs Optuna."
    ),
]
TierLimitOption = Annotated[
    str | None, typer.Option("--time-limit", help="How long each tier may train: 90s, 30m, 2h.")
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="The run's folder, or its URL, such as s3://BUCKET/FOLDER. [default: runs/GRAPH/MODEL-PRESET, or -BUDGET]",
    ),
]
UpdateOption = Annotated[
    str | None,
    typer.Option(
        "--update",
        help="A run, or its URL, whose decisions to learn from: accepted links join train, rejected ones are "
        "negatives. It stays as it is. [default for --out: RUN-updated]",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan with estimated times, and stop.")]
TrainingProcessesOption = Annotated[
    int, typer.Option("--training-processes", help="The number of processes that train the language models.")
]
ReproducePresetOption = Annotated[str, typer.Option("--preset", help="quick, balanced or best.")]
MaxHoursOption = Annotated[
    float | None,
    typer.Option(
        "--max-hours", help="How long it all may take; what does not fit is left out as OOT. [default: no limit]"
    ),
]
ReproduceOutOption = Annotated[
    str | None, typer.Option("--out", help="The run's folder, or its URL. [default: runs/GRAPH/reproduce-PRESET]")
]


@with_graph_options
@with_engine_options
@with_device_option
def fit(
    graph: OpenedGraph,
    tiers: TiersOption = "",
    model: ModelOption = "complex",
    preset: PresetOption = None,
    budget: BudgetOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    trials: TrialsOption = 0,
    out: OutOption = None,
    time_limit: TierLimitOption = None,
    update: UpdateOption = None,
    training_processes: TrainingProcessesOption = 1,
    dry_run: DryRunOption = False,
    *,
    engine: "Engine",
) -> None:
    """Train on a graph, tune on valid, and save everything in a folder; if interrupted, the same command resumes.

    Example: cascader fit wordnet --budget 30m
    """
    from cascader.models.device import training_with
    from cascader.runs import RunFolder, emit_plan, fit_request, fit_requested, plan_fit, tier_kinds

    folder = out or _default_folder(graph.kg.name, model, preset, budget, update)
    if update is not None and resolved(RunFolder(folder).path) == resolved(RunFolder(update).path):
        raise SettingsError(f"{update} stays as it is: what learns from it needs another folder. Name it with --out.")
    request = fit_request(
        graph.kg,
        tiers=tiers,
        model=model,
        preset=preset,
        budget=budget,
        settings=parsed_settings(settings or [], list(tier_kinds(tiers, model, graph.kg))),
        seed=seed,
        trials=trials,
        time_limit=time_limit,
        started=Clock.started,
        update=update,
    )
    if dry_run:
        emit_plan(plan_fit(request, RunFolder(folder)), request)
        return
    with training_with(training_processes):
        fit_requested(request, RunFolder(folder), engine)
    emit("written", f"Written to {folder}. Measure it with: cascader evaluate {folder}")
    emit("written", f"Ask it questions with: cascader predict {folder} ENTITY RELATION")


def _default_folder(graph: str, model: str, preset: str | None, budget: str | None, update: str | None) -> str | Path:
    """Name the folder by graph, model and preset or budget: runs/wordnet/complex-quick, runs/wordnet/complex-30m."""
    if update is not None:
        return f"{update.rstrip('/')}-updated"
    parts = [preset or ("" if budget else "quick"), (budget or "").replace(" ", "")]
    return Path("runs") / graph / "-".join([model.replace(",", "+"), *(part for part in parts if part)])


@with_graph_options
@with_engine_options
@with_device_option
def reproduce(
    graph: OpenedGraph,
    preset: ReproducePresetOption = "best",
    max_hours: MaxHoursOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    training_processes: TrainingProcessesOption = 1,
    out: ReproduceOutOption = None,
    dry_run: DryRunOption = False,
    *,
    engine: "Engine",
) -> None:
    """Train all tiers, let valid choose, and measure every row of the paper's tables and of ours on test, once each.

    The same command goes on after an interruption.

    Example: cascader reproduce repodb --preset quick --max-hours 3
    """
    from cascader.models.device import training_with
    from cascader.runs import RunFolder, emit_reproduction_plan, plan_requested, reproduce_requested
    from cascader.runs.reproduction import default_folder, reproduction_request, reproduction_tiers

    request = reproduction_request(
        graph.kg,
        preset=preset,
        max_hours=max_hours,
        settings=parsed_settings(settings or [], reproduction_tiers(graph.kg)),
        seed=seed,
        command=command_line(),
    )
    folder = RunFolder(out or default_folder(request))
    if dry_run:
        emit_reproduction_plan(plan_requested(request, folder), request.fit)
        return
    with training_with(training_processes):
        reproduce_requested(request, folder, engine)
