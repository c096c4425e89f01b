"""`cascader evaluate`, `baseline`, `table` and `compare`: measure a run, print figures, and compare them."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cascader.cli.console import echo, echo_table
from cascader.cli.options import (
    FilteringOption,
    OpenedGraph,
    PairsOption,
    RunArgument,
    ShardOption,
    SplitOption,
    TimeLimitOption,
    VerifyOption,
    budget_of,
    command_line,
    echo_share,
    share_engine,
    with_device_option,
    with_engine_options,
    with_graph_options,
)
from cascader.errors import DataError, SettingsError
from cascader.evaluation import METRICS, Evaluation
from cascader.evaluation import compare as compare_evaluations
from cascader.evaluation import evaluate as evaluate_scorer
from cascader.evaluation.comparison import results_table, summary_table
from cascader.evaluation.metrics import CONFIDENCE
from cascader.models import Frequency
from cascader.storage import is_url, local_path, refresh
from cascader.wording import counted

if TYPE_CHECKING:
    from cascader.scoring.engine import Engine

OutOption = Annotated[Path, typer.Option("--out", help="The folder for <graph>/frequency.json and its ranks.")]
EvaluationArgument = Annotated[
    str,
    typer.Argument(help="An evaluation's .json, with its .ranks.parquet next to it, or a run, for its latest results."),
]


@with_engine_options
@with_device_option
def evaluate(
    run: RunArgument,
    tiers: Annotated[
        str,
        typer.Option(
            "--tiers",
            help="Tiers to measure, added up, such as rules,kge,dual. [default: the tuned cascade]",
        ),
    ] = "",
    weights: Annotated[
        Literal["joint", "alpha", "tuned", "paper"],
        typer.Option(
            "--weights",
            help="With --tiers: weigh all at once (joint) or one after the other as in the paper (alpha), or tune a "
            "cascade of them: as fit does (tuned), or with the paper's search space (paper).",
        ),
    ] = "joint",
    beside: Annotated[
        str | None, typer.Option("--with", help="A second run: its embedding is added to this one's.")
    ] = None,
    split: SplitOption = "test",
    filtering: FilteringOption = "standard",
    time_limit: TimeLimitOption = None,
    pairs: PairsOption = None,
    shard: ShardOption = None,
    top: Annotated[
        int, typer.Option("--top", help="With --tiers: how many candidates per question a tier that reads pairs gets.")
    ] = 100,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The folder for the results, or with --shard for the scores. [default: RUN/results, RUN/shares]",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The name of the results. [default: from tiers and models]")] = "",
    verify: VerifyOption = True,
    *,
    engine: "Engine",
) -> None:
    """Measure a run: ask for the head and the tail of every test triple, and write the figures and every rank.

    Example: cascader evaluate runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import load_run, read_share

    names, budget = [tier.strip() for tier in tiers.split(",")] if tiers else None, budget_of(time_limit, pairs)
    if shard is not None and (beside or time_limit):
        raise SettingsError(f"--shard and {'--with' if beside else '--time-limit'} cannot be combined.")
    loaded = load_run(run, verify=verify)
    if out is None:
        loaded.folder.check_writable("result" if shard is None else "share")
    if shard is not None:
        share = share_engine(shard, out or loaded.folder.shares, engine)
        echo_share(share, run, out, read_share(loaded, split, names, weights, budget, top, share))
        return
    evaluation = loaded.evaluate(
        split,
        filtering=filtering,
        tiers=names,
        weights=weights,
        beside=None if beside is None else load_run(beside, verify=verify),
        budget=budget,
        top=top,
        name=name,
        engine=engine,
    )
    path = replace(evaluation, command=command_line()).save(out or loaded.folder.path / "results")
    echo_evaluations([evaluation])
    echo(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def merge(
    run: RunArgument,
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of shares, if --out named any.", show_default=False)
    ] = None,
) -> None:
    """Combine the scores written by `--shard`; every share must be present.

    Example: cascader merge runs/demo

    `cascader demo` makes that run.
    """
    from cascader.runs import RunFolder

    for folder in folders or ():
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}. Name those that --shard was given as --out.")
    new = RunFolder(run).merge(folders or [])
    echo(f"Stored {counted(new, 'new pair')} in {run}." if new else f"Nothing is left to merge into {run}.")


@with_graph_options
def baseline(graph: OpenedGraph, out: OutOption = Path("runs/results"), split: SplitOption = "test") -> None:
    """Measure the baseline: how well the most frequent answers do, without any model.

    Example: cascader baseline wordnet
    """
    evaluation = evaluate_scorer(Frequency().fit(graph.kg), graph.kg, split)
    path = replace(evaluation, command=command_line()).save(out / graph.kg.name)
    echo_evaluations([evaluation])
    echo(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def table(
    folder: Annotated[Path, typer.Argument(help="A folder with a folder of results for each graph.")] = Path("results"),
    summary: Annotated[
        bool, typer.Option("--summary", help="One row for each graph: its cascade, and what it gains.")
    ] = False,
) -> None:
    """Print all results in a folder as a Markdown table, next to the paper's figures.

    Example: cascader table runs/results

    `cascader baseline` writes its results there.
    """
    typer.echo(summary_table(folder) if summary else results_table(folder), nl=False)


def compare(
    first: EvaluationArgument,
    second: EvaluationArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Compare two evaluations of the same queries: figures, intervals, and whether the difference is chance."""
    paths = [_results_of(first), _results_of(second)]
    comparison = compare_evaluations(Evaluation.load(paths[0]), Evaluation.load(paths[1]))
    if as_json:
        typer.echo(json.dumps(comparison.as_dict(), indent=2))
        return
    names = [comparison.first.name, comparison.second.name]
    if names[0] == names[1]:
        names = [str(path) for path in paths]
    rows = [
        [
            metric,
            _with_interval(comparison.first.metrics[metric], comparison.first.intervals[metric]),
            _with_interval(comparison.second.metrics[metric], comparison.second.intervals[metric]),
            _with_interval(difference.value, difference.interval, signed=True),
            f"{difference.p_value:.4f}",
        ]
        for metric, difference in comparison.differences.items()
    ]
    echo(f"{comparison.first.dataset}, {comparison.first.split}, {counted(comparison.first.metrics.queries, 'query')}")
    echo_table(["metric", *names, "difference", "p"], rows)
    _echo_slices_beside(comparison.first, comparison.second, "side")
    echo(
        f"In brackets: {CONFIDENCE:.0%} bootstrap intervals. p: how often chance alone makes a difference this large "
        "(paired randomization test)."
    )


def _results_of(address: str) -> Path:
    """The file of results that is meant: of a run, those of its cascade, or else its latest."""
    path = _brought(address)
    if not path.exists():
        raise DataError(f"there is no file or folder {address}. Check the path.")
    if not path.is_dir():
        return path
    folder = path / "results" if (path / "results").is_dir() else path
    found = sorted(folder.glob("*.ranks.parquet"), key=lambda ranks: ranks.stat().st_mtime)
    if not found:
        raise DataError(f"{address} has no results yet. Measure it with: cascader evaluate {address}")
    own = folder / "cascade.ranks.parquet"
    return own if own in found else found[-1]


def _brought(address: str) -> Path:
    """The path of results or of a run; of what is at a URL, no more than the results is brought here."""
    if not is_url(address):
        return Path(address)
    if address.endswith((".json", ".parquet")):
        folder, _, name = address.rpartition("/")
        refresh(local_path(folder))
        return local_path(folder) / name
    path = local_path(address)
    refresh(path / "results")
    if not (path / "results").exists():
        refresh(path, without=("*/*",))
    return path


def echo_evaluations(evaluations: list[Evaluation], metrics: Collection[str] = METRICS) -> None:
    """Print the figures of several evaluations of the same queries."""
    rows = [
        [each.name, *(_with_interval(each.metrics[metric], each.intervals[metric]) for metric in metrics)]
        for each in evaluations
    ]
    first = evaluations[0]
    echo(f"{first.dataset}, {first.split}, {counted(first.metrics.queries, 'query')}")
    echo_table(["scorer", *metrics], rows)


def _with_interval(value: float, interval: tuple[float, float], signed: bool = False) -> str:
    digits = 1 if max(abs(value), *map(abs, interval)) >= 10 else 4
    sign = "+" if signed else ""
    low, high = interval
    return f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def _echo_slices_beside(first: Evaluation, second: Evaluation, way: str) -> None:
    rows = [
        [label, f"{metrics.queries:,}", f"{metrics['mrr']:.4f}", f"{second.slices[way][label]['mrr']:.4f}"]
        for label, metrics in first.slices[way].items()
    ]
    columns = [way, "queries", "mrr, first", "mrr, second"]
    echo_table(columns, rows, numbers=columns[1:])
