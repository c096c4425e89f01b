"""`cascader describe`, `report` and `serve`: show a fitted run."""

import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import echo, echo_table
from cascader.cli.options import RunArgument, VerifyOption, with_device_option, with_engine_options
from cascader.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    from cascader.graph import KnowledgeGraph
    from cascader.models.model import Model
    from cascader.scoring.engine import Engine

_QUESTIONS = 64
_CANDIDATES = 4


@with_device_option
def describe(run: RunArgument, verify: VerifyOption = True) -> None:
    """Describe each tier of a run: parameters, speed on this machine, size on disk, and training.

    Example: cascader describe runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run

    loaded = load_run(run, verify=verify)
    echo(f"{run}: {loaded.kg!r}, preset {loaded.metadata.preset}")
    rows = []
    for tier, about in loaded.describe_tiers().items():
        model, history = loaded.tiers[tier], loaded.tiers[tier].history_
        rows.append(
            [
                tier,
                str(about["settings"].get("objective", model.name)),
                f"{about['parameters']:,}",
                f"{_pairs_per_second(model, loaded.kg):,.0f}",
                f"{about['bytes'] / 1e6:,.1f} MB",
                f"{history.seconds + history.preparing_seconds:,.0f} s",
                "" if history.best_valid is None else f"{history.best_valid:.4f}",
            ]
        )
    columns = ["tier", "model", "parameters", "pairs/s here", "on disk", "training", "valid MRR"]
    echo_table(columns, rows, numbers=columns[2:])
    echo("A pair is a question and a candidate. The valid MRR of a later tier is that of its sum with the first.")


def _pairs_per_second(model: "Model", kg: "KnowledgeGraph") -> float:
    """Measure the speed on a few questions of train, after one to warm up."""
    from cascader.graph import Candidates, Queries

    queries = Queries.from_triples(kg.train[:_QUESTIONS])
    count = min(_CANDIDATES, len(kg.entities))

    def work(some: Queries) -> int:
        if not model.reads_pairs:  # it scores all entities at once
            return int(model.score_all(some).size)
        return len(model.score(some, Candidates.from_lists([list(range(count))] * len(some))))

    work(queries[:1])
    started = time.perf_counter()
    pairs = work(queries)
    return pairs / (time.perf_counter() - started)


@with_engine_options
@with_device_option
def report(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the report. [default: RUN/report]")] = None,
    verify: VerifyOption = True,
    *,
    engine: "Engine",
) -> None:
    """Write one page about a run: figures, what accuracy costs, what each tier adds, and where it fails.

    Example: cascader report runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run

    loaded = load_run(run, verify=verify)
    if out is None:
        loaded.folder.check_writable("report")
    page = loaded.report(out, engine)
    echo(f"Written to {page} and {page.with_suffix('.json')}; each table and chart to {page.parent / 'tables'}/*.csv.")


@with_device_option
def serve(
    run: RunArgument,
    host: Annotated[
        str, typer.Option("--host", help="The address to serve on; 0.0.0.0 lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 picks any free one.")] = 8000,
    token: Annotated[
        str,
        typer.Option("--token", envvar="CASCADER_TOKEN", help="A secret that every request to the API must send."),
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Take no decisions of reviewers: ask and look only.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="Change a limit, as in --limit seconds=60; repeatable. docs/serve.md lists them."),
    ] = None,
    verify: VerifyOption = True,
) -> None:
    """Serve a run as a web page for asking and exploring, and as a JSON API.

    Example: cascader serve runs/demo --port 8000
    """
    try:
        from cascader.serve import Limits
        from cascader.serve import serve as serve_run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette", "prometheus_client"):
            raise
        raise MissingExtraError(
            f'serving needs {error.name}, which is not installed. Install it with: pip install "cascader[serve]"'
        ) from error
    serve_run(
        run,
        host=host,
        port=port,
        token=token,
        verify=verify,
        read_only=read_only,
        limits=Limits(**_limits(limit or [], vars(Limits()))),
        ready=lambda url: echo(f"Serving {run} at {url}"),
    )


def _limits(changes: Sequence[str], defaults: Mapping[str, float]) -> dict[str, Any]:
    """Read limits of the form name=value; a limit that is a whole number stays one."""
    limits: dict[str, Any] = {}
    for change in changes:
        name, _, value = (part.strip() for part in change.partition("="))
        if name not in defaults:
            close = get_close_matches(name, defaults, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"there is no limit {name!r}.{hint} The limits are: {', '.join(defaults)}.")
        is_whole = isinstance(defaults[name], int)
        try:
            limits[name] = (int if is_whole else float)(value if value.isascii() else "")
        except ValueError:  # Python alone would read the digits of any script
            kind = "a whole number" if is_whole else "a number"
            raise SettingsError(f"--limit {change!r} has no value that is {kind}. Write it as {name}=NUMBER.") from None
    return limits
