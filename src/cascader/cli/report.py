"""`cascader report`: a run as numbers, figures and sentences on one page."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.cli.console import say
from cascader.evaluation import Evaluation


def report(
    run: Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")],
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the report. [default: RUN/report]")] = None,
    processes: Annotated[int, typer.Option("--processes", help="Processes that read texts at the same time.")] = 1,
) -> None:
    """Write one page about a run: figures, what accuracy costs, what each tier adds, and where it fails.

    Example: cascader report runs/demo

    `cascader demo` makes that run.
    """
    from cascader.report import about_tiers, analyze, write_report
    from cascader.runs import load_run
    from cascader.scoring.engines import LocalEngine

    loaded = load_run(run)
    evaluations = [Evaluation.load(path) for path in sorted((run / "results").glob("*.json"))]
    with LocalEngine(processes) as engine:
        tuned = loaded.tuned(engine) if len(loaded.kg.valid) else None
        calibration = loaded.answering(engine=engine).calibration
        numbers = analyze(
            loaded.kg, loaded.scorers(engine), tuned, evaluations, about_tiers(loaded), calibration=calibration
        )
    page = write_report(out or run / "report", numbers)
    say(f"Written to {page} and {page.with_suffix('.json')}.")
