"""The names, descriptions and types of entities and relations, and the tables that state them."""

from dataclasses import dataclass, field

from cascader.datasets.tables import Table
from cascader.errors import DataError
from cascader.graph import Entity, Relation

#: How good a text is: a label derived from an id beats none, an English one beats any other.
FROM_ID, OTHER_LANGUAGE, NO_LANGUAGE, ENGLISH = range(4)

_ID = ("id", "entity", "entity_id", "relation", "relation_id", "node", "iri", "uri")
_NAME = ("name", "label", "title")
_DESCRIPTION = ("description", "text", "definition", "gloss", "comment", "extract", "summary")
_TYPE = ("type", "category", "kind", "class")
_HEADER = {*_ID, *_NAME, *_DESCRIPTION, *_TYPE}


@dataclass
class BestTexts:
    """The best text offered so far for each id; the first of equally good ones wins."""

    _texts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def offer(self, id_: str, text: str, quality: int = NO_LANGUAGE) -> None:
        """Keep `text` if it is better than the present one."""
        if text and (id_ not in self._texts or quality > self._texts[id_][0]):
            self._texts[id_] = quality, text

    def ids(self) -> list[str]:
        """The ids that have a text, in the order in which they got their first one."""
        return list(self._texts)

    def of(self, id_: str) -> str:
        """The text of an id, empty if none was offered."""
        return self._texts[id_][1] if id_ in self._texts else ""


@dataclass
class Texts:
    """Everything that files say about ids besides their triples."""

    names: BestTexts = field(default_factory=BestTexts)
    descriptions: BestTexts = field(default_factory=BestTexts)
    types: BestTexts = field(default_factory=BestTexts)

    def add_table(self, table: Table) -> list[str]:
        """Add the names, descriptions and types of a table, and return its ids in order.

        Every column but the id may be missing: a table of ids alone says which entities there are.
        """
        columns = _columns(table)
        first_row: dict[str, int] = {}
        for row, fields in enumerate(table.rows):
            id_, name, description, type_ = ("" if column is None else fields[column].strip() for column in columns)
            _check_id(table, row, id_, first_row)
            self.names.offer(id_, name)
            self.descriptions.offer(id_, description)
            self.types.offer(id_, type_)
        return list(first_row)

    def entity(self, id_: str) -> Entity:
        """The entity with this id, which is also its name if no file has a better one."""
        return Entity(id_, self.names.of(id_) or id_, self.descriptions.of(id_), self.types.of(id_))

    def relation(self, id_: str) -> Relation:
        """The relation with this id, which is also its name if no file has a better one."""
        return Relation(id_, self.names.of(id_) or id_)


def is_text_header(names: tuple[str, ...]) -> bool:
    """Whether a first row names columns: one such word alone may be an entity, as WordNet's node, label and class."""
    return "id" in names or len(_HEADER.intersection(names)) >= 2


def _check_id(table: Table, row: int, id_: str, first_row: dict[str, int]) -> None:
    if not id_:
        raise DataError(f"{table.where(row)}: the id is empty. Give every row an id, or delete the row.")
    if first_row.setdefault(id_, row) != row:
        raise DataError(
            f"{table.where(row)}: id {id_!r} is already defined at {table.where(first_row[id_])}. "
            "Ids must be unique: delete or rename one of the two."
        )


def _columns(table: Table) -> list[int | None]:
    """The positions of id, name, description and type."""
    if table.header is None:
        if table.width > 4:
            raise DataError(
                f"{table.where(0)}: found {table.width} columns, expected at most 4: id, name, description, type. "
                "Add a header to a table with more columns."
            )
        return [column if column < table.width else None for column in range(4)]
    columns = [table.column(names) for names in (_ID, _NAME, _DESCRIPTION, _TYPE)]
    if columns[0] is None:
        raise DataError(f"{table.label}: the header {', '.join(table.header)} has no id column. Name one of them id.")
    return columns
