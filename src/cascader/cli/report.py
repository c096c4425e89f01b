"""`cascader report`: write a one-page report on a run."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.console import echo
from cascader.cli.options import ProcessesOption, RunArgument


def report(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the report. [default: RUN/report]")] = None,
    processes: ProcessesOption = 1,
) -> None:
    """Write one page about a run: figures, what accuracy costs, what each tier adds, and where it fails.

    Example: cascader report runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run
    from cascader.scoring.engine import LocalEngine

    with LocalEngine(processes) as engine:
        page = load_run(run).report(out, engine)
    echo(f"Written to {page} and {page.with_suffix('.json')}.")
