"""The id spaces of Neo4j: the ids of `:ID(Drug)` and `:ID(Disease)` may be the same, and still name two nodes."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import combinations

from cascader.datasets.columns import Column
from cascader.datasets.tables import Table


def shared_spaces(tables: Iterable[Table]) -> frozenset[str]:
    """The spaces with an id that another space has, too."""
    ids: dict[str, set[str]] = {}
    for table in tables:
        place = table.column(["id"])
        if place is not None:
            space = table.spaces[place] if table.spaces else ""
            ids.setdefault(space, set()).update(text.strip() for text in table.columns[place].texts)
    pairs = combinations(ids, 2)
    return frozenset(space for pair in pairs if ids[pair[0]] & ids[pair[1]] for space in pair if space)


def told_apart(table: Table, spaces: Collection[str]) -> Table:
    """The table with the space before each id of these spaces: only there, since ids are what people ask by."""
    if not any(space in spaces for space in table.spaces):
        return table
    pairs = zip(table.columns, table.spaces, strict=True)
    return replace(table, columns=tuple(_prefixed(c, space) if space in spaces else c for c, space in pairs))


def _prefixed(ids: Column, space: str) -> Column:
    return ids.changed(lambda text: f"{space}:{text.strip()}" if text.strip() else "")
