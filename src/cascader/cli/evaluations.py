"""`cascader baseline`, `compare` and `demo`: figures, and whether they differ."""

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cascader.cli.console import say, say_table, shortened
from cascader.cli.graphs import EntityTable, NameOrPath, RelationTable, Seed, TestShare, Unseen, ValidShare, open_named
from cascader.datasets import Counts, Split, load_dataset
from cascader.evaluation import METRICS, Evaluation, evaluate
from cascader.evaluation import compare as compare_evaluations
from cascader.evaluation.intervals import CONFIDENCE
from cascader.graph import KnowledgeGraph, SplitName
from cascader.models import Frequency

OutOption = Annotated[Path, typer.Option("--out", help="The folder that gets <graph>/frequency.json and its ranks.")]
SplitOption = Annotated[SplitName, typer.Option("--split", help="The triples to ask for.")]
EvaluationArgument = Annotated[Path, typer.Argument(help="An evaluation's .json, with its .ranks.parquet beside it.")]


def baseline(
    graph: NameOrPath,
    out: OutOption = Path("runs/results"),
    split: SplitOption = "test",
    entities: EntityTable = None,
    relations: RelationTable = None,
    valid: ValidShare = Split.valid,
    test: TestShare = Split.test,
    seed: Seed = Split.seed,
    unseen: Unseen = Split.unseen_entities,
) -> None:
    """Measure the floor: how well the most frequent answers do, with no model at all.

    Example: cascader baseline codex-s
    """
    kg = open_named(graph, entities, relations, Split(valid, test, seed, unseen))
    evaluation = evaluate(Frequency().fit(kg), kg, split)
    path = evaluation.save(out / kg.name)
    _say_evaluation(evaluation)
    say(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def compare(
    first: EvaluationArgument,
    second: EvaluationArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Compare two evaluations of the same queries: figures, intervals, and whether the difference is chance.

    Example: cascader compare results/codex-s/kge-complex.json results/codex-s/cascade.json
    """
    comparison = compare_evaluations(Evaluation.load(first), Evaluation.load(second))
    if as_json:
        typer.echo(json.dumps(comparison.as_dict(), indent=2))
        return
    names = [comparison.first.name, comparison.second.name]
    if names[0] == names[1]:
        names = [str(first), str(second)]
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
    say(f"{comparison.first.dataset}, {comparison.first.split}, {comparison.first.metrics.queries:,} queries")
    say_table(["metric", *names, "difference", "p"], rows)
    _say_slices_beside(comparison.first, comparison.second, "side")
    say(
        f"In brackets: {CONFIDENCE:.0%} bootstrap intervals. p: how often chance alone makes a difference this large "
        "(paired randomisation test)."
    )


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for the results.")] = Path("runs/demo"),
) -> None:
    """Build the WordNet graph, ask for every held-back link, and measure the answers.

    Example: cascader demo
    """
    started = time.perf_counter()
    kg = load_dataset("wordnet")
    counts = Counts.of(kg)
    say(
        f"1. Built a graph of places from WordNet: {counts.entities:,} entities, {counts.relations} relations, "
        f"{counts.train:,} triples to learn from, {counts.valid:,} to choose on, {counts.test:,} to be tested on."
    )
    scorer = Frequency().fit(kg)
    evaluation = evaluate(scorer, kg)
    say(
        f"2. Asked for the head and the tail of each test triple, and ranked all entities: "
        f"{evaluation.metrics.queries:,} questions in {evaluation.seconds:.1f} s. The scorer is the floor that a model "
        "must beat: the most frequent answers."
    )
    _say_evaluation(evaluation)
    _say_slices(evaluation, "relation_kind")
    say("3. One question, answered:")
    _say_answers(kg, scorer)
    path = evaluation.save(out / "results" / kg.name)
    say(f"4. Wrote {path} and {path.with_suffix('.ranks.parquet')}: every figure follows from those ranks.")
    say(f"Done in {time.perf_counter() - started:.1f} s. Try next: cascader data show wordnet")


def _say_answers(kg: KnowledgeGraph, scorer: Frequency, top: int = 5) -> None:
    """The best answers to the first test question that train does not already answer."""
    head, relation, tail = kg.test[0]
    query = kg.query(kg.entities[head].id, kg.relations[relation].id)
    scores = scorer.score_all(query)[0]
    known = kg.known(("train", "valid")).of(query)[0]
    scores[known] = -np.inf
    best = np.argsort(-scores, kind="stable")[:top]
    question = f"({kg.entities[head].name}, {kg.relations[relation].name}, ?)"
    say(f"{question}, where the answer is {kg.entities[tail].name}")
    rows = [
        [str(place), kg.entities[entity].name, shortened(kg.entities[entity].description, 80)]
        for place, entity in enumerate(best, start=1)
    ]
    say_table(["rank", "answer", "description"], rows, numbers=["rank"])


def _say_evaluation(evaluation: Evaluation) -> None:
    rows = [[evaluation.name, *(_with_interval(evaluation.metrics[m], evaluation.intervals[m]) for m in METRICS)]]
    say(f"{evaluation.dataset}, {evaluation.split}, {evaluation.metrics.queries:,} queries")
    say_table(["scorer", *METRICS], rows)


def _with_interval(value: float, interval: tuple[float, float], signed: bool = False) -> str:
    digits = 1 if max(abs(value), *map(abs, interval)) >= 10 else 4
    sign = "+" if signed else ""
    low, high = interval
    return f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def _say_slices(evaluation: Evaluation, way: str) -> None:
    rows = [
        [label, f"{metrics.queries:,}", f"{metrics['mrr']:.4f}", f"{metrics['hits@10']:.4f}"]
        for label, metrics in evaluation.slices[way].items()
    ]
    say_table([way.replace("_", " "), "queries", "mrr", "hits@10"], rows, numbers=["queries", "mrr", "hits@10"])


def _say_slices_beside(first: Evaluation, second: Evaluation, way: str) -> None:
    rows = [
        [label, f"{metrics.queries:,}", f"{metrics['mrr']:.4f}", f"{second.slices[way][label]['mrr']:.4f}"]
        for label, metrics in first.slices[way].items()
    ]
    columns = [way, "queries", "mrr, first", "mrr, second"]
    say_table(columns, rows, numbers=columns[1:])
