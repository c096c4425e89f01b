"""`cascader reproduce`: the whole protocol on one graph, from nothing to the table."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.fit import DryRunOption, SeedOption, SetOption
from cascader.cli.options import OpenedGraph, ProcessesOption, command_line, parsed_settings, with_graph_options

PresetOption = Annotated[str, typer.Option("--preset", help="quick, balanced or best.")]
MaxHoursOption = Annotated[
    float | None,
    typer.Option(
        "--max-hours", help="How long it all may take; what does not fit is left out as OOT. [default: no limit]"
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="The run's folder. [default: runs/GRAPH/reproduce-PRESET]")
]


@with_graph_options
def reproduce(
    graph: OpenedGraph,
    preset: PresetOption = "best",
    max_hours: MaxHoursOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    processes: ProcessesOption = 1,
    out: OutOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Train all tiers, let valid choose, and measure every row of the paper's tables and of ours on test, once each.

    The same command goes on after an interruption.

    Example: cascader reproduce repodb --preset quick --max-hours 3
    """
    from cascader.runs import RunFolder, emit_reproduction_plan, plan_requested, reproduce_requested
    from cascader.runs.reproduction import default_folder, reproduction_request, reproduction_tiers
    from cascader.scoring.engine import LocalEngine

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
    with LocalEngine(processes) as engine:
        reproduce_requested(request, folder, engine)
