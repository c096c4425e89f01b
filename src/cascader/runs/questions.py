"""Questions and triples from files, and every question that makes sense for a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from cascader.datasets.tables import Table, read_table
from cascader.datasets.triples import read_statements
from cascader.errors import DataError
from cascader.graph import KnowledgeGraph, Queries, Side

_ENTITY = ("entity", "anchor", "head", "id", "name")
_RELATION = ("relation", "predicate", "r")
_SIDE = ("side",)

Found = TypeVar("Found")
Fields = TypeVar("Fields")


@dataclass(frozen=True)
class Rows(Generic[Found]):
    """The rows of a file that could be read, and a message for each one that could not."""

    found: list[Found]
    problems: list[str]

    @classmethod
    def of(cls, read: Callable[[Fields], Found], rows: Sequence[Fields], where: Callable[[int], str]) -> "Rows[Found]":
        """Read every row, and collect the problems."""
        found, problems = [], []
        for row, fields in enumerate(rows):
            try:
                found.append(read(fields))
            except DataError as error:
                problems.append(f"{where(row)}: {error}")
        return cls(found, problems)

    def required(self) -> list[Found]:
        """Return all rows; an error names the first bad one."""
        if self.problems:
            more = f" ({len(self.problems) - 1:,} more rows are bad.)" if len(self.problems) > 1 else ""
            raise DataError(f"{self.problems[0]}{more} Correct the file, or skip such rows with --keep-going.")
        return self.found


def read_questions(path: Path, kg: KnowledgeGraph, side: Side = "tail") -> Rows[Queries]:
    """Read questions from a table with the columns entity, relation and, optionally, side."""
    table = read_table(path, lambda names: any(name in names for name in _ENTITY) and "relation" in names)
    columns = _columns(table)

    def ask(fields: list[str]) -> Queries:
        entity, relation, *own_side = (fields[column].strip() for column in columns)
        return kg.query(entity, relation, (own_side[0] if own_side and own_side[0] else side))  # type: ignore[arg-type]

    return Rows.of(ask, table.rows, table.where)


def _columns(table: Table) -> list[int]:
    if table.header is not None:
        found = [table.column(names) for names in (_ENTITY, _RELATION, _SIDE)]
        columns = [column for column in found if column is not None]
        if None not in found[:2]:
            return columns
    elif table.width in (2, 3):
        return list(range(table.width))
    raise DataError(
        f"{table.where(0)}: found {table.width} column{'' if table.width == 1 else 's'}, expected entity, relation "
        "and, optionally, side. Separate columns with tabs (.tsv, .txt) or commas (.csv)."
    )


def read_triples(path: Path, kg: KnowledgeGraph) -> Rows[tuple[int, int, int]]:
    """Read triples from a file, by id or name, as indices."""
    statements = read_statements(path)

    def resolve(triple: tuple[str, str, str]) -> tuple[int, int, int]:
        head, relation, tail = triple
        return kg.entity_index(head), kg.relation_index(relation), kg.entity_index(tail)

    return Rows.of(resolve, statements.triples, statements.where)


def every_question(kg: KnowledgeGraph) -> Queries:
    """Return each question that train has an answer to: others would make little sense."""
    return Queries.from_triples(kg.train).unique()[0]


def joined(queries: list[Queries]) -> Queries:
    """Join several questions into one block."""
    return Queries(
        anchors=np.concatenate([query.anchors for query in queries]),
        relations=np.concatenate([query.relations for query in queries]),
        predicts_tail=np.concatenate([query.predicts_tail for query in queries]),
    )
