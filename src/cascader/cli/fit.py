"""`cascader fit`: fit a run to a graph."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.console import echo
from cascader.cli.options import OpenedGraph, parsed_settings, with_graph_options

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
    Path | None, typer.Option("--out", help="The run's folder. [default: runs/GRAPH/MODEL-PRESET, or -BUDGET]")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan with estimated times, and stop.")]


@with_graph_options
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
    dry_run: DryRunOption = False,
) -> None:
    """Train on a graph, tune on valid, and save everything in a folder; if interrupted, the same command resumes.

    Example: cascader fit wordnet --budget 30m
    """
    from cascader.runs import RunFolder, emit_plan, fit_request, fit_requested, plan_fit, tier_kinds

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
    )
    folder = out or _default_folder(graph.kg.name, model, preset, budget)
    if dry_run:
        emit_plan(plan_fit(request, RunFolder(folder)), request)
        return
    fit_requested(request, RunFolder(folder))
    echo(f"Written to {folder}. Measure it with: cascader evaluate {folder}")
    echo(f"Ask it questions with: cascader predict {folder} ENTITY RELATION")


def _default_folder(graph: str, model: str, preset: str | None, budget: str | None) -> Path:
    """Name the folder by graph, model and preset or budget: runs/wordnet/complex-quick, runs/wordnet/complex-30m."""
    parts = [preset or ("" if budget else "quick"), (budget or "").replace(" ", "")]
    return Path("runs") / graph / "-".join([model.replace(",", "+"), *(part for part in parts if part)])
