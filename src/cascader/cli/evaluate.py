"""`cascader evaluate`: measure a run."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.compare import echo_evaluations
from cascader.cli.console import echo
from cascader.cli.options import (
    FilteringOption,
    PairsOption,
    ProcessesOption,
    RunArgument,
    SplitOption,
    TimeLimitOption,
    budget_of,
)


def evaluate(
    run: RunArgument,
    tiers: Annotated[
        str,
        typer.Option(
            "--tiers",
            help="Tiers to measure, added up: kge (the embedding), dual, cross (the language models). [default: the "
            "tuned cascade]",
        ),
    ] = "",
    beside: Annotated[
        Path | None, typer.Option("--with", help="A second run: its first tier is added to this one's.")
    ] = None,
    split: SplitOption = "test",
    filtering: FilteringOption = "standard",
    time_limit: TimeLimitOption = None,
    pairs: PairsOption = None,
    processes: ProcessesOption = 1,
    top: Annotated[
        int, typer.Option("--top", help="With --tiers: how many candidates per question a tier that reads pairs gets.")
    ] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the results. [default: RUN/results]")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The name of the results. [default: from tiers and models]")] = "",
) -> None:
    """Measure a run: ask for the head and the tail of every test triple, and write the figures and every rank.

    Example: cascader evaluate runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run
    from cascader.scoring.engine import LocalEngine

    loaded = load_run(run)
    with LocalEngine(processes) as engine:
        evaluation = loaded.evaluate(
            split,
            filtering=filtering,
            tiers=[tier.strip() for tier in tiers.split(",")] if tiers else None,
            beside=None if beside is None else load_run(beside),
            budget=budget_of(time_limit, pairs),
            top=top,
            name=name,
            engine=engine,
        )
    path = evaluation.save(out or run / "results")
    echo_evaluations([evaluation])
    echo(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")
