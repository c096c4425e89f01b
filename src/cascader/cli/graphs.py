"""How every command is told which graph it is about."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from cascader.datasets import CATALOG, Dataset, Split, load_graph
from cascader.graph import KnowledgeGraph


@dataclass(frozen=True)
class Opened:
    """A graph, and its entry in the catalog; people's own have none."""

    kg: KnowledgeGraph
    dataset: Dataset | None


def open_named(
    graph: Annotated[str, typer.Argument(help="A name that `cascader data list` shows, or a path.")],
    entities: Annotated[Path | None, typer.Option("--entities", help="A table of id, name, description, type.")] = None,
    relations: Annotated[Path | None, typer.Option("--relations", help="A table of id, name.")] = None,
    valid: Annotated[
        float, typer.Option("--valid", help="The share to hold back for valid if the graph comes in one piece.")
    ] = Split.valid,
    test: Annotated[float, typer.Option("--test", help="The share to hold back for test, likewise.")] = Split.test,
    split_seed: Annotated[int, typer.Option("--split-seed", help="Draws what is held back.")] = Split.seed,
    allow_unseen: Annotated[
        bool, typer.Option("--allow-unseen", help="Let valid and test have entities that train never shows.")
    ] = Split.unseen_entities,
) -> Opened:
    """A graph of the catalog as it is, or people's own with the tables and the split that they ask for."""
    split = Split(valid, test, split_seed, allow_unseen)
    kg = load_graph(graph, entities=entities, relations=relations, split=split)
    return Opened(kg, None if Path(graph).exists() else CATALOG[graph.lower()])


_OPENING = signature(open_named).parameters


def about_a_graph(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is an opened graph gets the argument and the options that say which one."""

    @wraps(command)
    def opening(graph: str, **options: Any) -> None:  # noqa: ANN401 - those of the command
        which = {name: options.pop(name) for name in _OPENING if name in options}
        command(open_named(graph, **which), **options)

    _, *own = signature(command).parameters.values()
    argument, *tables = _OPENING.values()
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in (*own, *tables)]
    # Typer reads both: what a command takes, and of which types.
    opening.__signature__ = Signature([argument, *keywords])  # type: ignore[attr-defined]
    opening.__annotations__ = {parameter.name: parameter.annotation for parameter in (argument, *keywords)}
    return opening
