"""The triples of a file, by id, each with the place it was found at."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cascader.datasets.rdf import RDF_SUFFIXES, read_rdf
from cascader.datasets.tables import Table, read_table
from cascader.datasets.texts import Texts
from cascader.errors import DataError

#: The names that people give to the columns of a triple (KGX, PyKEEN, Neo4j and spreadsheets among them).
_HEAD = ("head", "h", "subject", "s", "source", "from", "start", "head_entity", "subject_id", "head_id", "start_id")
_RELATION = ("relation", "r", "predicate", "p", "relationship", "edge", "edge_label", "label", "type", "relation_id")
_TAIL = ("tail", "t", "object", "o", "target", "to", "end", "tail_entity", "object_id", "tail_id", "end_id")
_ROLES = {"head": _HEAD, "relation": _RELATION, "tail": _TAIL}
#: Two of these make a first row a header even if the third column goes by another name; one alone may be an entity.
_UNMISTAKABLE = {"head", "tail", "relation", "subject", "predicate", "object"}


@dataclass(frozen=True)
class Statements:
    """Triples of ids in the order of their file."""

    triples: list[tuple[str, str, str]]
    where: Callable[[int], str]


def read_statements(path: Path, *texts: Texts) -> Statements:
    """Read the triples of a file, whatever its format; an RDF file's labels go into each of `texts`."""
    if path.suffix.lower() in RDF_SUFFIXES:
        links = read_rdf(path, *texts)
        if not links:
            raise DataError(f"{path} holds no triples that link two entities. Expected at least one.")
        return Statements(links, lambda row: f"{path}, link {row + 1}")
    return statements_of(read_table(path, _is_header))


def _is_header(names: tuple[str, ...]) -> bool:
    names_all_roles = all(any(name in names for name in role) for role in _ROLES.values())
    return names_all_roles or len(_UNMISTAKABLE.intersection(names)) >= 2


def statements_of(table: Table) -> Statements:
    """Take the three columns of a triple from a table, by name if it has a header, by order if not."""
    columns = _columns(table)
    triples = []
    for row, fields in enumerate(table.rows):
        head, relation, tail = (fields[column].strip() for column in columns)
        if not (head and relation and tail):
            raise DataError(
                f"{table.where(row)}: found an empty field in ({head!r}, {relation!r}, {tail!r}). "
                "A triple needs a head, a relation and a tail: fill it in or drop the row."
            )
        triples.append((head, relation, tail))
    return Statements(triples, table.where)


def _columns(table: Table) -> tuple[int, int, int]:
    if table.header is None:
        if table.width != 3:
            raise DataError(
                f"{table.where(0)}: found {table.width} column{'' if table.width == 1 else 's'}, expected 3: head, "
                f"relation, tail. The row is {_shown(table.rows[0])}. Separate columns with tabs (.tsv, .txt) or "
                "commas (.csv), and give a table with more columns a header."
            )
        return 0, 1, 2
    found = {role: table.column(names) for role, names in _ROLES.items()}
    missing = [role for role, column in found.items() if column is None]
    if missing:
        raise DataError(
            f"{table.label}: the header {', '.join(table.header)} has no column for {' and '.join(missing)}. "
            "Name the columns head, relation and tail."
        )
    head, relation, tail = (column for column in found.values() if column is not None)
    return head, relation, tail


def _shown(fields: list[str]) -> str:
    text = " | ".join(fields)
    return repr(text if len(text) <= 80 else text[:77] + "...")
