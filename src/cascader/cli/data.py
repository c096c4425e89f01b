"""`cascader data`: list, show, check and convert graphs."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cascader.cli.console import echo, echo_table, shortened
from cascader.cli.options import OpenedGraph, with_graph_options
from cascader.datasets import CATALOG, Counts, Format, locate, save_graph
from cascader.errors import DataError
from cascader.evaluation import relation_kinds
from cascader.graph import KnowledgeGraph
from cascader.graph.knowledge_graph import findings
from cascader.wording import counted

app = typer.Typer(
    help="List, show, check and convert graphs.",
    epilog="Start with: cascader data list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_COUNTS = ("entities", "relations", "train", "valid", "test")


@app.command("list", epilog="Example: cascader data list")
def list_() -> None:
    """List the graphs that are known by name."""
    rows = []
    for dataset in CATALOG.values():
        counts = [f"{count:,}" for count in dataset.counts] if dataset.counts else ["–"] * len(_COUNTS)
        rows.append([dataset.name, *counts, _at_hand(dataset.name), dataset.title])
    echo_table(["name", *_COUNTS, "at hand", "what"], rows, numbers=_COUNTS)
    echo("Licenses and homes: cascader data show NAME")


def _at_hand(name: str) -> str:
    """Say whether a graph can be loaded without a download: all of its files are there, and as they should be."""
    dataset = CATALOG[name]
    try:
        if not dataset.is_installed():
            return "not installed"
        if not all(locate(source) for source in dataset.sources):
            return "download"
        return "yes" if all(locate(source) for source in dataset.optional_sources) else "without some texts"
    except DataError:
        return "damaged"


@app.command(epilog="Example: cascader data show wordnet")
@with_graph_options
def show(graph: OpenedGraph) -> None:
    """Show a graph: its home and license, its size, its texts, its relations, and some triples."""
    if graph.dataset is not None:
        echo(graph.dataset.title)
        echo(f"license: {graph.dataset.license}")
        for source in (*graph.dataset.sources, *graph.dataset.optional_sources):
            echo(f"home: {source.home}")
    for echo_part in (_echo_counts, _echo_texts, _echo_relations, _echo_examples):
        echo_part(graph.kg)


@app.command(epilog="Example: cascader data check wordnet")
@with_graph_options
def check(graph: OpenedGraph) -> None:
    """Read a graph completely, and report its size, missing texts, oddities and leaks.

    A file of triples is enough: head, relation and tail in three columns, separated by tabs (my-graph.tsv).
    """
    _echo_counts(graph.kg)
    _echo_rows(graph.kg)
    found = findings(graph.kg)
    for finding in found:
        echo(f"- {finding}")
    echo("The graph can be used." + ("" if found else " Nothing odd was found."))


@app.command(epilog="Example: cascader data convert wordnet --to csv --out wordnet-csv")
@with_graph_options
def convert(
    graph: OpenedGraph,
    to: Annotated[Format, typer.Option("--to", help="The format to write.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder for train, valid, test, entities and relations.")],
) -> None:
    """Write a graph in another format, all of it or nothing."""
    save_graph(graph.kg, out, to)
    _echo_counts(graph.kg)
    echo(f"Written to {out}.")


def _echo_counts(kg: KnowledgeGraph) -> None:
    counts = [f"{count:,}" for count in Counts.of(kg)]
    echo_table(["graph", *_COUNTS, "sha256"], [[kg.name, *counts, kg.data_hash[:12]]], numbers=_COUNTS)


def _echo_rows(kg: KnowledgeGraph, most: int = 10) -> None:
    """Print the first triples by name, as they were understood."""
    rows = [
        [shortened(part.name, 50) for part in (kg.entities[head], kg.relations[relation], kg.entities[tail])]
        for head, relation, tail in kg.train[:most].tolist()
    ]
    echo(f"The first {f'{len(rows)} triples' if len(rows) > 1 else 'triple'} of train, by name:")
    echo_table(["head", "relation", "tail"], rows)


def _echo_texts(kg: KnowledgeGraph) -> None:
    words = [len(entity.description.split()) for entity in kg.entities]
    described = sum(count > 0 for count in words)
    typed = sum(bool(entity.type) for entity in kg.entities)
    mean = sum(words) / described if described else 0
    echo(f"{described:,} of {len(words):,} entities have a description (mean {mean:.1f} words), {typed:,} have a type.")


def _echo_relations(kg: KnowledgeGraph, most: int = 12) -> None:
    kinds = relation_kinds(kg)
    counts = np.bincount(kg.train[:, 1], minlength=len(kg.relations)).tolist()
    order = sorted(range(len(counts)), key=lambda relation: -counts[relation])
    rows = [[kg.relations[r].name, kg.relations[r].id, str(kinds[r]), f"{counts[r]:,}"] for r in order[:most]]
    echo_table(["relation", "id", "kind", "train triples"], rows, numbers=["train triples"])
    if len(order) > most:
        echo(f"and {counted(len(order) - most, 'more relation')}")


def _echo_examples(kg: KnowledgeGraph, most: int = 3) -> None:
    for head, relation, tail in kg.train[:most]:
        sentence = f"{kg.entities[head].name} — {kg.relations[relation].name} — {kg.entities[tail].name}"
        echo(f"for example: {shortened(sentence, 150)}")
