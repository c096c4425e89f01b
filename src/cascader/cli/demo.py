"""`cascader demo`: all of it, on a graph that comes with the package."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cascader.cli.compare import say_evaluations
from cascader.cli.console import say, say_table
from cascader.cli.evaluate import measured_cascade, measured_sum
from cascader.cli.fit import fit
from cascader.cli.report import report
from cascader.datasets import Counts, load_graph
from cascader.evaluation import Evaluation, evaluate
from cascader.models import Frequency

if TYPE_CHECKING:
    from cascader.runs import Run

_GRAPH = "wordnet"
_SUMS = ("kge", "dual", "kge,dual")
#: Test triples whose tails are asked for, and how many answers are shown to each.
_QUESTIONS = 2
_ANSWERS = 4


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for the run and its report.")] = Path("runs/demo"),
) -> None:
    """Build the WordNet graph, train three tiers, tune them, measure them, ask a few questions, and write the report.

    Example: cascader demo
    """
    from cascader.runs import load_run

    started = time.perf_counter()
    counts = Counts.of(load_graph(_GRAPH))
    say(
        f"1. A graph of places from WordNet: {counts.entities:,} entities, {counts.relations} relations, "
        f"{counts.train:,} triples to learn from, {counts.valid:,} to choose on, {counts.test:,} to be tested on."
    )
    say("2. Training three tiers and tuning their cascade on valid: cascader fit wordnet")
    fit(_GRAPH, tiers="kge,dual,cross", preset="quick", out=out)
    run = load_run(out)
    say("3. Asking for the head and the tail of each test triple, and ranking all entities: cascader evaluate")
    say_evaluations(_measured(run))
    say("4. Questions, answered: cascader predict --why")
    _say_answers(run)
    say("5. The report, with every figure and chart: cascader report")
    report(out)
    say(f'Done in {time.perf_counter() - started:.0f} s. Try next: cascader predict {out} Germany "has the part" --why')


def _measured(run: "Run") -> list[Evaluation]:
    """The floor, each tier alone, their sum and the cascade, on test; all are kept in the run."""
    measured = [evaluate(Frequency().fit(run.kg), run.kg), *(measured_sum(run, "test", tiers) for tiers in _SUMS)]
    measured.append(measured_cascade(run, "test"))
    for evaluation in measured:
        evaluation.save(run.folder / "results")
    return measured


def _say_answers(run: "Run") -> None:
    """The best answers to a few test questions, and what each tier made of them."""
    entities, relations = run.kg.entities, run.kg.relations
    for head, relation, tail in run.kg.test[:_QUESTIONS].tolist():
        say(f"({entities[head].name}, {relations[relation].name}, ?), where test says {entities[tail].name}:")
        answers = run.predict(entities[head].id, relations[relation].id, top=_ANSWERS)
        rows = [[str(found.rank), found.name, "; ".join(found.why())] for found in answers]
        say_table(["rank", "answer", "why"], rows, numbers=["rank"])
