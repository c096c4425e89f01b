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
from cascader.evaluation.tables import results_table
from cascader.graph import KnowledgeGraph, SplitName
from cascader.models import Frequency
from cascader.scorer import Scorer

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
    say_evaluation(evaluation)
    say(f"Written to {path} and {path.with_suffix('.ranks.parquet')}.")


def table(
    folder: Annotated[Path, typer.Argument(help="A folder with a folder of results for each graph.")] = Path("results"),
) -> None:
    """Print all kept results as Markdown, with the paper's figures beside ours.

    Example: cascader table results
    """
    typer.echo(results_table(folder), nl=False)


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
    """Build the WordNet graph, train an embedding, ask for every held-back link, and measure the answers.

    Example: cascader demo
    """
    from cascader.models.embeddings import ComplEx, preset

    started = time.perf_counter()
    kg = load_dataset("wordnet")
    counts = Counts.of(kg)
    say(
        f"1. Built a graph of places from WordNet: {counts.entities:,} entities, {counts.relations} relations, "
        f"{counts.train:,} triples to learn from, {counts.valid:,} to choose on, {counts.test:,} to be tested on."
    )
    model = ComplEx(**preset("complex", "quick", kg.name)).fit(kg)
    say(f"2. Trained tier 1, a ComplEx embedding, in {model.history_['seconds']:.0f} s.")
    floor = evaluate(Frequency().fit(kg), kg)
    evaluation = evaluate(model, kg, name="kge-complex", seed=model.recipe.seed)
    say(
        f"3. Asked for the head and the tail of each test triple, and ranked all entities: "
        f"{evaluation.metrics.queries:,} questions. The floor that a model must beat is the most frequent answers."
    )
    _say_evaluations([floor, evaluation])
    _say_slices(evaluation, "relation_kind")
    say("4. One question, answered:")
    _say_answers(kg, model)
    paths = [result.save(out / "results" / kg.name) for result in (floor, evaluation)]
    say(f"5. Wrote {paths[0]} and {paths[1]}, each with its ranks: every figure follows from those.")
    say(f"Done in {time.perf_counter() - started:.0f} s. Try next: cascader compare {paths[0]} {paths[1]}")


def _say_answers(kg: KnowledgeGraph, scorer: Scorer, top: int = 5) -> None:
    """The best answers to the first test question, without those that train already knows."""
    head, relation, tail = kg.test[0]
    query = kg.query(kg.entities[head].id, kg.relations[relation].id)
    scores = scorer.score_all(query)[0]
    known = kg.known(("train", "valid")).of(query)[0]
    best = [entity for entity in np.argsort(-scores, kind="stable") if entity not in known][:top]
    question = f"({kg.entities[head].name}, {kg.relations[relation].name}, ?)"
    say(f"{question}, where the answer is {kg.entities[tail].name}")
    rows = [
        [str(place), kg.entities[entity].name, shortened(kg.entities[entity].description, 80)]
        for place, entity in enumerate(best, start=1)
    ]
    say_table(["rank", "answer", "description"], rows, numbers=["rank"])


def say_evaluation(evaluation: Evaluation) -> None:
    """Print the figures of an evaluation with their intervals."""
    _say_evaluations([evaluation])


def _say_evaluations(evaluations: list[Evaluation]) -> None:
    rows = [
        [each.name, *(_with_interval(each.metrics[metric], each.intervals[metric]) for metric in METRICS)]
        for each in evaluations
    ]
    first = evaluations[0]
    say(f"{first.dataset}, {first.split}, {first.metrics.queries:,} queries")
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
