"""Triples by id as a file states them, each with the place it was read from, and what else the file says."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cascader.datasets.columns import (
    SPLIT_NAMES,
    Column,
    EndColumns,
    TripleColumns,
    column_name,
    is_triple_header,
    triple_columns,
)
from cascader.datasets.id_spaces import told_apart
from cascader.datasets.rdf import RDF_SUFFIXES, read_rdf
from cascader.datasets.tables import Table, read_table
from cascader.datasets.texts import TextColumns, Texts
from cascader.errors import DataError
from cascader.graph import SPLITS
from cascader.graph.arrays import offsets_of
from cascader.wording import counted

logger = logging.getLogger(__name__)

#: The one relation of a list of edges that names none.
ONLY_RELATION = "related to"
#: With fewer rows, that the words of the first one occur nowhere else says nothing.
_MIN_ROWS_BELOW_HEADER = 2


@dataclass(frozen=True, eq=False)
class Statements:
    """Triples of ids in the order of their file; `where` locates row i for an error message.

    `splits` has the split of each triple, if the file says it. `may_have_header` if the first row may be a header whose
    words are not understood.
    """

    heads: Column
    relations: Column
    tails: Column
    where: Callable[[int], str]
    splits: Column | None = None
    may_have_header: bool = False

    @classmethod
    def of(cls, triples: Sequence[tuple[str, str, str]], where: Callable[[int], str]) -> "Statements":
        """The statements of a list of triples."""
        heads, relations, tails = (Column.of(triple[place] for triple in triples) for place in range(3))
        return cls(heads, relations, tails, where)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def triples(self) -> list[tuple[str, str, str]]:
        """All triples, for files that are small."""
        return list(zip(self.heads.values(), self.relations.values(), self.tails.values(), strict=True))

    def by_split(self, role: str) -> dict[str, "Statements"]:
        """The statements of each split; all of them under `role` if the file does not say which they belong to."""
        if self.splits is None or role != "triples":
            return {role: self}
        return {split: self._of(self.splits, split) for split in SPLITS if split in self.splits.texts}

    def _of(self, splits: Column, split: str) -> "Statements":
        rows = np.flatnonzero(splits.codes == splits.texts.index(split))
        heads, relations, tails = (column.taken(rows) for column in (self.heads, self.relations, self.tails))
        return Statements(heads, relations, tails, lambda row: self.where(int(rows[row])))


def joined_statements(parts: Sequence[Statements]) -> Statements:
    """The statements of several files as one list; their splits count only if all have them."""
    if len(parts) == 1:
        return parts[0]
    starts = offsets_of([len(part) for part in parts])

    def where(row: int) -> str:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        return parts[part].where(row - int(starts[part]))

    heads, relations, tails = (
        Column.joined([getattr(part, name) for part in parts]) for name in ("heads", "relations", "tails")
    )
    splits = [part.splits for part in parts if part.splits is not None]
    joined_splits = Column.joined(splits) if len(splits) == len(parts) else None
    return Statements(heads, relations, tails, where, joined_splits, parts[0].may_have_header)


def read_statements(
    path: Path,
    entities: Texts | None = None,
    relations: Texts | None = None,
    columns: Sequence[str | int] | None = None,
) -> Statements:
    """Read the triples of a file in any supported format; what it says of names and types is added to the texts.

    `columns` names those of head, relation and tail, or numbers them from 1 in a table without a header.
    """
    texts = [each for each in (entities, relations) if each is not None]
    if path.suffix.lower() in RDF_SUFFIXES:
        links = read_rdf(path, *texts)
        if not links:
            raise DataError(f"{path} has no triples that link two entities, expected at least one.")
        return Statements.of(links, lambda row: f"{path}, link {row + 1}")
    if columns is None:
        table = read_table(path, is_triple_header)
        _ask_about_header(table)
        return statements_of(table, entities, relations)
    names = tuple(column_name(str(name)) for name in columns)
    table = read_table(path, lambda header: set(names) <= set(header))
    return statements_of(table, entities, relations, chosen_columns(table, columns))


def chosen_columns(table: Table, columns: Sequence[str | int]) -> TripleColumns:
    """The columns that someone has chosen for head, relation and tail, by name or number."""
    names = tuple(column_name(str(name)) for name in columns)
    found = [_position(table, name) for name in names]
    head, relation, tail = found if len(found) == 3 else (None, None, None)
    if head is None or relation is None or tail is None:
        first = ", ".join(table.header or table.first)
        raise DataError(
            f"{table.label}: there are no columns {', '.join(names)}. Its first row is {_shown(first)}. Name three of "
            "these columns, for head, relation and tail, or number them from 1 if the file has no header."
        )
    return TripleColumns(EndColumns(head), relation, EndColumns(tail))


def _position(table: Table, name: str) -> int | None:
    if table.header is not None:
        return table.header.index(name) if name in table.header else None
    return int(name) - 1 if name.isdecimal() and 1 <= int(name) <= table.width else None


def _ask_about_header(table: Table) -> None:
    """Ask about a first row whose words occur nowhere else: read as a triple, it would add a relation of its own."""
    if table.header is not None or table.width != 3 or not _has_rows_below(table):
        return
    first, (heads, relations, tails) = table.first, table.columns
    ends = [_occurs_below(column, text) for column in (heads, tails) for text in (first[0], first[2])]
    if any(ends) or _occurs_below(relations, first[1]):
        return
    names = ",".join(text.strip() for text in first)
    logger.warning(
        "%s: is this a header? %s occur nowhere else in the file. It was read as a triple. If it names the columns, "
        'say so with --columns "%s"; if it is a triple, with --columns 1,2,3.',
        table.where(0),
        _shown(" | ".join(first)),
        names,
    )


def _has_rows_below(table: Table) -> bool:
    """Whether there are enough rows below the first to tell whether it is one of them."""
    return len(table) > _MIN_ROWS_BELOW_HEADER


def possible_header(table: Table) -> str | None:
    """Where the first row stands, if it may be a header with words of its own."""
    return table.where(0) if table.header is None and _has_rows_below(table) else None


def _occurs_below(column: Column, text: str) -> bool:
    """Whether a row below the first has a text."""
    return text in column.texts and bool((column.codes[1:] == column.texts.index(text)).any())


def statements_of(
    table: Table, entities: Texts | None = None, relations: Texts | None = None, columns: TripleColumns | None = None
) -> Statements:
    """The triples of a table: columns are found by name if it has a header, otherwise by order."""
    may_have_header = columns is None and table.header is None
    table = table if entities is None else told_apart(table, entities.spaces)
    columns = columns or _columns(table)
    _tell_columns(table, columns)
    heads, tails = (table.columns[end.id].changed(str.strip) for end in (columns.head, columns.tail))
    relation_ids = _relations(table, columns.relation)
    _check_no_empty(table, heads, relation_ids, tails)
    if entities is not None:
        ends = ((heads, columns.head), (tails, columns.tail))
        entities.add_pairs([_texts_beside(table, ids, end) for ids, end in ends])
    if relations is not None and columns.relation_name is not None:
        relations.add_pairs([TextColumns(relation_ids, table.columns[columns.relation_name])])
    return Statements(heads, relation_ids, tails, table.where, _splits(table, columns.split), may_have_header)


def _relations(table: Table, column: int | None) -> Column:
    if column is None:
        return Column([ONLY_RELATION], np.zeros(len(table), dtype=np.int32))
    return table.columns[column].changed(str.strip)


def _check_no_empty(table: Table, *triple: Column) -> None:
    rows = [row for column in triple if (row := column.first_row_of("")) is not None]
    if rows:
        head, relation, tail = (column[min(rows)] for column in triple)
        raise DataError(
            f"{table.where(min(rows))}: found an empty field in ({head!r}, {relation!r}, {tail!r}). "
            "A triple needs a head, a relation and a tail: fill in the field or delete the row."
        )


def _texts_beside(table: Table, ids: Column, end: EndColumns) -> TextColumns:
    """What the rows say of the entities at one end."""
    places = (end.name, end.description, end.type)
    return TextColumns(ids, *(None if place is None else table.columns[place] for place in places))


def _splits(table: Table, place: int | None) -> Column | None:
    """The split of each row, if every row names one."""
    if place is None:
        return None
    named = table.columns[place].changed(lambda text: SPLIT_NAMES.get(text.strip().lower(), ""))
    return None if "" in named.texts else named


def _columns(table: Table) -> TripleColumns:
    if table.header is None:
        if table.width != 3:
            raise DataError(_not_three(table))
        return TripleColumns(EndColumns(0), 1, EndColumns(2))
    found = triple_columns(table.header)
    if isinstance(found, list):
        raise DataError(
            f"{table.label}: the header {table.shown_header} has no column for {' and '.join(found)}. Name the columns "
            f"head, relation and tail, or say which they are with {table.choice('HEAD', 'RELATION', 'TAIL')}."
        )
    return found if found.relation is not None else _with_relation(table, found)


def _with_relation(table: Table, columns: TripleColumns) -> TripleColumns:
    """What is left beside the ends is the relation, unless it is a number; without one, all edges are of one kind."""
    assert table.header is not None  # noqa: S101 - only a header tells the ends
    others = [column for column in range(table.width) if column not in columns.used()]
    words = [column for column in others if not all(map(_is_number, table.columns[column].texts))]
    if len(words) > 1:
        names = [table.header[column] for column in words]
        ends = table.header[columns.head.id], table.header[columns.tail.id]
        raise DataError(
            f"{table.label}: the header {table.shown_header} has no column for relation. Is it "
            f"{' or '.join(names)}? Say so with {table.choice(ends[0], names[0], ends[1])}, for instance."
        )
    if not words:
        logger.warning("%s names no relation: all of its edges are read as %r.", table.label, ONLY_RELATION)
    return replace(columns, relation=words[0] if words else None)


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def _tell_columns(table: Table, columns: TripleColumns) -> None:
    """Say which columns were taken for what, and which are not read, unless that goes without saying."""
    if table.header is None:
        return
    relation = ONLY_RELATION if columns.relation is None else table.header[columns.relation]
    read = f"{table.header[columns.head.id]}, {relation}, {table.header[columns.tail.id]}"
    unused = [name or "one without a name" for n, name in enumerate(table.header) if n not in columns.used()]
    also = f"; not read: {', '.join(unused)}" if unused else ""
    if also or read != "head, relation, tail":
        logger.info("%s: head, relation and tail are the columns %s%s.", table.label, read, also)


def _not_three(table: Table) -> str:
    shown = _shown(" | ".join(table.first))
    message = (
        f"{table.where(0)}: found {counted(table.width, 'column')}, expected 3: head, relation, "
        f"tail. The row is {shown}."
    )
    if table.width == 1:
        return f"{message} Separate columns with tabs (.tsv, .txt) or commas (.csv).{_renamed(table)}"
    if table.width == 2:
        return f"{message} For edges that are all of one kind, add a header: source, target."
    return (
        f"{message} Say which columns are head, relation and tail: with --columns HEAD,RELATION,TAIL if the first row "
        "names them, or with --columns 1,2,3 if there is no header."
    )


def _renamed(table: Table) -> str:
    """Advice for a file whose suffix promises tabs, and whose rows have other separators."""
    text = table.first[0]
    for separator, name in ((",", "commas"), (";", "semicolons")):
        if text.count(separator) >= 2:
            return f" This file seems to have {name}: rename it to .csv."
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
