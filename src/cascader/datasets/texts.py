"""What files say of ids besides their triples: names, descriptions and types."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from cascader.datasets.columns import Column, text_columns
from cascader.datasets.id_spaces import told_apart
from cascader.datasets.tables import Table
from cascader.errors import DataError
from cascader.graph import Entity, Relation

logger = logging.getLogger(__name__)

#: How good a text is: a label derived from an id beats none, an English one beats any other.
FROM_ID, OTHER_LANGUAGE, NO_LANGUAGE, ENGLISH = range(4)

#: What the columns of a table of texts mean if it has no header.
TEXT_ORDER = ("id", "name", "description", "type")


@dataclass
class BestTexts:
    """The best text offered so far for each id; the first of equally good ones wins."""

    _texts: dict[str, str] = field(default_factory=dict)
    _qualities: dict[str, int] = field(default_factory=dict)  # of those that have a language, or come from an id

    def offer(self, id_: str, text: str, quality: int = NO_LANGUAGE) -> None:
        """Keep `text` if it is better than the present one."""
        if text and (id_ not in self._texts or quality > self._qualities.get(id_, NO_LANGUAGE)):
            self._texts[id_] = text
            if quality != NO_LANGUAGE:
                self._qualities[id_] = quality
            else:
                self._qualities.pop(id_, None)

    def ids(self) -> list[str]:
        """The ids that have a text, in the order in which they got their first one."""
        return list(self._texts)

    def of(self, id_: str) -> str:
        """The text of an id, empty if none was offered."""
        return self._texts.get(id_, "")

    def all_of(self, ids: Iterable[str], otherwise: Iterable[str]) -> Iterator[str]:
        """The text of each id, or the other one if none was offered."""
        return map(self._texts.get, ids, otherwise)


@dataclass
class Texts:
    """Everything that files say about ids besides their triples; `spaces` are those of Neo4j that share ids."""

    names: BestTexts = field(default_factory=BestTexts)
    descriptions: BestTexts = field(default_factory=BestTexts)
    types: BestTexts = field(default_factory=BestTexts)
    spaces: frozenset[str] = frozenset()

    def add_table(self, table: Table, order: Sequence[str] = TEXT_ORDER) -> list[str]:
        """Add the names, descriptions and types of a table, and return its ids in order.

        Every column but the id may be missing: a table of ids alone says which entities there are. `order` says what
        the columns are if the table has no header.
        """
        table = told_apart(table, self.spaces)
        id_column, *others = (None if place is None else table.columns[place] for place in _columns(table, order))
        ids = _checked_ids(table, id_column)
        for best, column in zip((self.names, self.descriptions, self.types), others, strict=True):
            if column is not None:
                for id_, text in zip(ids, column.changed(str.strip).values(), strict=True):
                    best.offer(id_, text)
        return ids

    def add_pairs(self, pairs: "Sequence[TextColumns]") -> None:
        """Add what the rows of a table of triples say of the ids in them: of several texts, that of the first row."""
        for kind in ("names", "descriptions", "types"):
            columns = [(each.ids, text) for each in pairs if (text := getattr(each, kind)) is not None]
            for id_, text in _in_order(columns):
                getattr(self, kind).offer(id_, text)

    def entities(self, ids: Collection[str]) -> tuple[Entity, ...]:
        """The entities with these ids, which are also their names if no file has better ones."""
        others = (best.all_of(ids, repeat("")) for best in (self.descriptions, self.types))
        return tuple(map(Entity, ids, self.names.all_of(ids, ids), *others))

    def relations(self, ids: Collection[str]) -> tuple[Relation, ...]:
        """The relations with these ids, which are also their names if no file has better ones."""
        return tuple(map(Relation, ids, self.names.all_of(ids, ids)))


@dataclass(frozen=True, eq=False)
class TextColumns:
    """What a table of triples says of the ids in one of its columns, row by row."""

    ids: Column
    names: Column | None = None
    descriptions: Column | None = None
    types: Column | None = None


def _in_order(columns: Sequence[tuple[Column, Column]]) -> Iterator[tuple[str, str]]:
    """The distinct pairs of ids and texts, in the order in which the rows have them, from left to right."""
    found: list[tuple[int, int, str, str]] = []
    for place, (ids, texts) in enumerate(columns):
        pairs = ids.codes.astype(np.int64) * len(texts.texts) + texts.codes
        rows = np.unique(pairs, return_index=True)[1].tolist()
        found += [(row, place, ids[row], texts[row].strip()) for row in rows]
    return ((id_, text) for _, _, id_, text in sorted(found))


def _checked_ids(table: Table, column: Column | None) -> list[str]:
    """The ids of a table, one for each row."""
    ids = [""] * len(table) if column is None else column.changed(str.strip).values()
    first_row = {id_: row for row, id_ in reversed(list(enumerate(ids)))}
    if "" in first_row or len(first_row) < len(ids):
        row = next(row for row, id_ in enumerate(ids) if not id_ or first_row[id_] != row)
        raise DataError(_bad_id(table, row, ids[row], first_row))
    return ids


def _bad_id(table: Table, row: int, id_: str, first_row: Mapping[str, int]) -> str:
    if not id_:
        return f"{table.where(row)}: the id is empty. Give every row an id, or delete the row."
    return (
        f"{table.where(row)}: id {id_!r} is already defined at {table.where(first_row[id_])}. "
        "Ids must be unique: delete or rename one of the two."
    )


def _columns(table: Table, order: Sequence[str]) -> list[int | None]:
    """The positions of id, name, description and type."""
    if table.header is None:
        if table.width > len(order):
            raise DataError(
                f"{table.where(0)}: found {table.width} columns, expected at most {len(order)}: {', '.join(order)}. "
                "Add a header to a table with more columns."
            )
        given = order[: table.width]
        return [given.index(role) if role in given else None for role in TEXT_ORDER]
    columns = text_columns(table.header)
    if columns["id"] is None:
        raise DataError(f"{table.label}: the header {table.shown_header} has no id column. Name one of them id.")
    _tell_columns(table.label, table.header, columns)
    return list(columns.values())


def _tell_columns(label: str, header: Sequence[str], columns: Mapping[str, int | None]) -> None:
    """Say which columns were taken for what, and which are not read, unless that goes without saying."""
    named = {role: header[column] for role, column in columns.items() if column is not None}
    unused = [name for column, name in enumerate(header) if column not in columns.values()]
    if unused or any(role != name for role, name in named.items()):
        read = ", ".join(f"{role} is {name}" for role, name in named.items())
        logger.info("%s: %s%s.", label, read, f"; not read: {', '.join(unused)}" if unused else "")
