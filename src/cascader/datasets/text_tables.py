"""Tables of entities and relations: an id a row, with its texts."""

from pathlib import Path

from cascader.datasets.rdf import RDF_SUFFIXES, read_rdf
from cascader.datasets.tables import Table, read_table
from cascader.datasets.texts import Texts
from cascader.errors import DataError

_ID = ("id", "entity", "entity_id", "relation", "relation_id", "node", "iri", "uri")
_NAME = ("name", "label", "title")
_DESCRIPTION = ("description", "text", "definition", "gloss", "comment", "extract", "summary")
_TYPE = ("type", "category", "kind", "class")
_HEADER = {*_ID, *_NAME, *_DESCRIPTION, *_TYPE}


def read_text_table(path: Path, texts: Texts) -> list[str]:
    """Put the names, descriptions and types of a table into `texts`, and return its ids in order.

    All columns but the id may be missing: a table of ids alone says which entities there are.
    """
    if path.suffix.lower() in RDF_SUFFIXES:
        read_rdf(path, texts)
        return list(dict.fromkeys([*texts.names.ids(), *texts.descriptions.ids()]))
    return take_texts(read_table(path, _is_header), texts)


def take_texts(table: Table, texts: Texts) -> list[str]:
    """The same for a table that is there already."""
    columns = _columns(table)
    first_row: dict[str, int] = {}
    for row, fields in enumerate(table.rows):
        id_, name, description, type_ = ("" if column is None else fields[column].strip() for column in columns)
        _check_id(table, row, id_, first_row)
        texts.names.offer(id_, name)
        texts.descriptions.offer(id_, description)
        texts.types.offer(id_, type_)
    return list(first_row)


def _is_header(names: tuple[str, ...]) -> bool:
    """One name alone may be an entity's: WordNet has a node, a label and a class."""
    return "id" in names or len(_HEADER.intersection(names)) >= 2


def _check_id(table: Table, row: int, id_: str, first_row: dict[str, int]) -> None:
    if not id_:
        raise DataError(f"{table.where(row)}: the id is empty. Give every row an id, or drop it.")
    if first_row.setdefault(id_, row) != row:
        raise DataError(
            f"{table.where(row)}: id {id_!r} stands already at {table.where(first_row[id_])}. "
            "Ids must be unique: drop or rename one of the two."
        )


def _columns(table: Table) -> list[int | None]:
    """The places of id, name, description and type."""
    if table.header is None:
        if table.width > 4:
            raise DataError(
                f"{table.where(0)}: found {table.width} columns, expected at most 4: id, name, description, type. "
                "Give a table with more columns a header."
            )
        return [column if column < table.width else None for column in range(4)]
    columns = [table.column(names) for names in (_ID, _NAME, _DESCRIPTION, _TYPE)]
    if columns[0] is None:
        raise DataError(f"{table.label}: the header {', '.join(table.header)} has no id column. Name one of them id.")
    return columns
