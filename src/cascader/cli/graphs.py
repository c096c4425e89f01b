"""How every command is told which graph it is about."""

from pathlib import Path
from typing import Annotated

import typer

from cascader.datasets import CATALOG, Split, load_dataset, read_graph
from cascader.errors import DataError
from cascader.graph import KnowledgeGraph

NameOrPath = Annotated[str, typer.Argument(help="A name that `cascader data list` shows, or a path.")]
EntityTable = Annotated[Path | None, typer.Option("--entities", help="A table of id, name, description, type.")]
RelationTable = Annotated[Path | None, typer.Option("--relations", help="A table of id, name.")]
ValidShare = Annotated[
    float, typer.Option("--valid", help="The share to hold back for valid if the graph comes in one piece.")
]
TestShare = Annotated[float, typer.Option("--test", help="The share to hold back for test, likewise.")]
Seed = Annotated[int, typer.Option("--seed", help="Draws what is held back.")]
Unseen = Annotated[
    bool, typer.Option("--allow-unseen", help="Let valid and test have entities that train never shows.")
]


def open_named(graph: str, entities: Path | None, relations: Path | None, split: Split) -> KnowledgeGraph:
    """A graph of the catalog as it is, or people's own with the tables and the split that they ask for."""
    if Path(graph).exists() or graph.lower() not in CATALOG:
        return read_graph(graph, entities=entities, relations=relations, split=split)
    if entities or relations or split != Split():
        raise DataError(
            f"{graph} is a benchmark: its texts and splits are part of it. Options about tables and splits are for "
            "graphs of your own."
        )
    return load_dataset(graph)
