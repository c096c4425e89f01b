"""`cascader demo`: every step from a graph to a report, on a graph that is built from WordNet."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cascader.cli.console import echo, echo_table
from cascader.cli.evaluate import echo_evaluations
from cascader.cli.options import command_line
from cascader.cli.predict import echo_reason
from cascader.datasets import Counts, load_graph
from cascader.display import only
from cascader.durations import format_duration
from cascader.evaluation import Evaluation, evaluate
from cascader.models import Frequency

if TYPE_CHECKING:
    from cascader.runs import Predictions, Run

_GRAPH = "wordnet"
#: What is measured beside the cascade: tiers, alone or weighed together, by the names of their results.
_SUMS = {
    "rules": ["rules"],
    "kge": ["kge"],
    "structure": ["plausibility", "rules", "similarity", "kge"],
    "dual": ["dual"],
}
#: How many test triples may be asked for their tails until one is answered right.
_TRIED = 20
_ANSWERS, _REASONS = 4, 3
#: Three screens have room for two metrics with their intervals, and for what is new to someone who sees it first.
_METRICS = ("mrr", "hits@10")
_TOLD = ("usable", "trained", "tuned", "finished", "resumed", "found", "note", "progress")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for the run and its report.")] = Path("runs/demo"),
) -> None:
    """Build the WordNet graph, fit all tiers, tune them, measure them, ask a few questions, and write the report.

    Example: cascader demo
    """
    from cascader.runs import fit

    started, kg = time.perf_counter(), load_graph(_GRAPH)
    counts = Counts.of(kg)
    echo(
        f"1. A graph of places from WordNet: {counts.entities:,} entities, {counts.relations} relations, "
        f"{counts.train:,} triples to learn from, {counts.valid:,} to choose on, {counts.test:,} to be tested on."
    )
    echo("2. Fitting all tiers, from rules to language models, and tuning their cascade on valid: cascader fit wordnet")
    with only(*_TOLD):
        run = fit(kg, out, preset="quick")
    echo("3. Asking for the head and the tail of each test triple, and ranking all entities: cascader evaluate")
    with only("note", "progress"):
        echo_evaluations(_evaluations(run), _METRICS)
    echo("4. The report, with every figure and chart: cascader report")
    page = run.report()
    echo(f"Written to {page} and {page.with_suffix('.json')}.")
    spent = format_duration(time.perf_counter() - started)
    echo(f"5. After {spent}, a question of test, answered with the reasons: cascader predict --known --why")
    echo(f'Ask your own: cascader predict {out} Germany "has the part" --why')
    _echo(_answers(run))


def _echo(answers: "Predictions") -> None:
    """Print the answers to one question, and why the first of them is the first."""
    from cascader.runs import percent

    best = answers[0]
    echo(f"({best.anchor.name}, {best.relation.name}, ?)")
    rows = [
        [str(answer.rank), f"{answer.name}{' (known)' if answer.is_known else ''}", percent(answer.probability)]
        for answer in answers
    ]
    echo_table(["rank", "name", "probability"], rows, numbers=["rank", "probability"])
    echo(f"Why {best.name}?")
    for reason in best.reasons[:_REASONS]:
        echo_reason(reason)


def _answers(run: "Run") -> "Predictions":
    """The answers to the first question of test whose best answer is the one that test has, or to the first of all."""
    kg, tried = run.kg, []
    for head, relation, tail in kg.test[:_TRIED].tolist():
        # With what is known: the answer that test has would else be left out, as an answer that needs no prediction.
        answers = run.predict(kg.entities[head].id, kg.relations[relation].id, top=_ANSWERS, with_known=True)
        if answers[0].id == kg.entities[tail].id and answers[0].reasons:
            return answers
        tried.append(answers)
    return tried[0]


def _evaluations(run: "Run") -> list[Evaluation]:
    """Evaluate the baseline, some tiers and the cascade on test, and save the results in the run."""
    baseline = evaluate(Frequency().fit(run.kg), run.kg)
    sums = [run.evaluate(tiers=tiers, name=name) for name, tiers in _SUMS.items()]
    found = [baseline, *sums, run.evaluate()]
    for evaluation in found:
        replace(evaluation, command=command_line()).save(run.folder.path / "results")
    return found
