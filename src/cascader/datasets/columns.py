"""The columns of tables: their texts, what people call them, and what each then says of a triple or an entity."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from cascader.graph import IntArray

#: What people call the two ends of a link: PyKEEN, RDF and KGX, networkx and Gephi, Neo4j, PrimeKG, spreadsheets.
_ENDS = (
    ("head", "tail"),
    ("subject", "object"),
    ("subj", "obj"),
    ("source", "target"),
    ("source", "destination"),
    ("src", "dst"),
    ("from", "to"),
    ("start", "end"),
    ("x", "y"),
    ("h", "t"),
    ("s", "o"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("entity1", "entity2"),
    ("entity_1", "entity_2"),
)
#: The ends that are entities of their own more often than columns: what they mean is said by a suffix only.
_ONLY_WITH_SUFFIX = {"x", "y"}
#: What follows the name of an end, the best id first. PrimeKG's x_id repeats between sources, its x_index does not.
_ID_SUFFIXES = ("_id", "_curie", "_iri", "_uri", "", "_entity", "_node", "_idx", "_index", "_name", "_label")
_NUMBERED_ID_SUFFIXES = ("_index", *_ID_SUFFIXES)
_NAME_SUFFIXES = ("_name", "_label", "_title", "")
_DESCRIPTION_SUFFIXES = ("_description", "_text")
_TYPE_SUFFIXES = ("_type", "_category", "_class", "_kind")

_RELATIONS = (
    *("predicate_id", "relation_id", "property_id", "rel_id"),
    *("predicate", "relation", "relationship", "rel", "relation_type", "relationship_type", "rel_type"),
    *("edge_type", "edge_label", "link_type", "interaction_type", "interaction", "property", "edge", "link"),
    *("r", "p", "label", "type", "relation_name", "predicate_label", "display_relation"),
)
_RELATION_NAMES = (
    *("relation_name", "relation_label", "predicate_name", "predicate_label", "relationship_name"),
    *("property_label", "display_relation", "predicate", "relation"),
)
#: The column that says which split a triple belongs to, and what may stand in it.
_SPLIT = ("split", "subset")
SPLIT_NAMES = {
    "train": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}

#: Two of these make the first row a header even if the third column has another name; one alone may be an entity.
_UNMISTAKABLE = {"head", "tail", "relation", "subject", "predicate", "object"}

_KINDS = ("node", "entity", "relation", "predicate")
_ID = (
    *("id", "node_index", "entity", "entity_id", "relation", "relation_id", "predicate", "node", "node_id"),
    *("iri", "uri", "curie", "identifier", "nodeid", "entityid"),
)
_NAME = ("name", "label", "title", *(f"{kind}_name" for kind in _KINDS), *(f"{kind}_label" for kind in _KINDS))
_DESCRIPTION = (
    *("description", "text", "definition", "gloss", "comment", "extract", "summary", "abstract", "desc"),
    *(f"{kind}_{what}" for kind in _KINDS for what in ("description", "text")),
)
_TYPE = ("type", "category", "kind", "class", "labels", "node_type", "entity_type", "ent_type")
#: What stands above a list of ids and nothing else.
_LIST_HEADERS = {("entity_id",), ("node_id",), ("relation_id",)}
_TEXT_HEADER = {*_ID, *_NAME, *_DESCRIPTION, *_TYPE}

_NEO4J = {"ID": "id", "START_ID": "start_id", "END_ID": "end_id", "TYPE": "type", "LABEL": "labels"}
_NEO4J_IDS = ("ID", "START_ID", "END_ID")
_NEO4J_FIELD = re.compile(r"(?P<name>[^:]*):(?P<kind>[A-Za-z_]+)(\[\])?(?P<space>\(.*\)|\{.*\})?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def column_name(name: str) -> str:
    """The normalized name of a column: "Head Entity" and headEntity become head_entity, Neo4j's x:ID(Person) id.

    >>> [column_name(name) for name in ("Head Entity", "tailId", ":START_ID(Person)", "name:string", "_type")]
    ['head_entity', 'tail_id', 'start_id', 'name', 'type']
    """
    name = name.strip()
    neo4j = _NEO4J_FIELD.fullmatch(name)
    if neo4j:
        name = _NEO4J.get(neo4j["kind"].upper(), neo4j["name"] or neo4j["kind"])
    plain = "_".join(_CAMEL.sub("_", name).lower().replace("-", " ").split())
    return plain.strip("_") or plain


def id_space(name: str) -> str:
    """The space of Neo4j that the ids of a column belong to, empty if the column names none.

    >>> [id_space(name) for name in ("drugId:ID(Drug)", ":END_ID(Disease)", ":ID", "name")]
    ['Drug', 'Disease', '', '']
    """
    neo4j = _NEO4J_FIELD.fullmatch(name.strip())
    if neo4j is None or neo4j["kind"].upper() not in _NEO4J_IDS:
        return ""
    return (neo4j["space"] or "")[1:-1].strip()


@dataclass(frozen=True, eq=False)
class Column:
    """Texts, one for each row; a text that many rows have is held once.

    >>> column = Column.of(["a", "b", "a "]).changed(str.strip)
    >>> column.texts, column.codes.tolist(), column[2]
    (['a', 'b'], [0, 1, 0], 'a')
    """

    texts: list[str]  # distinct, each of some row
    codes: IntArray  # (rows,) the place of each row's text

    @classmethod
    def of(cls, values: Iterable[str]) -> "Column":
        """The column with these values."""
        places: dict[str, int] = {}
        codes = np.fromiter((places.setdefault(value, len(places)) for value in values), dtype=np.int32)
        return cls(list(places), codes)

    @classmethod
    def joined(cls, parts: Sequence["Column"]) -> "Column":
        """Columns one below the other."""
        together = cls.of(text for part in parts for text in part.texts)
        own = np.split(together.codes, np.cumsum([len(part.texts) for part in parts])[:-1])
        codes = [places[part.codes] for places, part in zip(own, parts, strict=True)]
        return cls(together.texts, np.concatenate(codes))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.texts[self.codes[row]]

    def values(self) -> list[str]:
        """The text of every row."""
        return [self.texts[code] for code in self.codes.tolist()]

    def changed(self, change: Callable[[str], str]) -> "Column":
        """The column with every text changed, which may make some of them equal."""
        texts = list(map(change, self.texts))
        if texts == self.texts:
            return self
        changed = Column.of(texts)
        return Column(changed.texts, changed.codes[self.codes])

    def taken(self, rows: IntArray) -> "Column":
        """The column with these rows only."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Column([self.texts[code] for code in used.tolist()], codes)

    def first_rows(self) -> IntArray:
        """The first row of each text; shape (texts,)."""
        first = np.empty(len(self.texts), dtype=np.int64)
        first[self.codes[::-1]] = np.arange(len(self.codes) - 1, -1, -1)  # of several values, the last one stays
        return first

    def first_row_of(self, text: str) -> int | None:
        """The first row that has this text; None if there is none."""
        return int(np.argmax(self.codes == self.texts.index(text))) if text in self.texts else None


@dataclass(frozen=True)
class EndColumns:
    """Where a table says which entity stands at one end of a triple, and what else it says of it."""

    id: int
    name: int | None = None
    description: int | None = None
    type: int | None = None


@dataclass(frozen=True)
class TripleColumns:
    """Where a table says what; `relation` is None in a plain list of edges, all of one kind."""

    head: EndColumns
    relation: int | None
    tail: EndColumns
    relation_name: int | None = None
    split: int | None = None

    def used(self) -> set[int]:
        """The columns that are read."""
        ends = [getattr(end, field.name) for end in (self.head, self.tail) for field in fields(end)]
        return {column for column in (*ends, self.relation, self.relation_name, self.split) if column is not None}


def triple_columns(names: Sequence[str]) -> TripleColumns | list[str]:
    """The columns of a header, or the names of what it lacks: head, relation or tail."""
    ends = _paired_ends(names) or _any_ends(names)
    used = {column for end in ends if end is not None for column in vars(end).values()}
    relation = _first(names, _RELATIONS, used)
    head, tail = ends
    if head is None or tail is None:
        found = {"head": head, "relation": relation, "tail": tail}
        return [role for role, column in found.items() if column is None]
    name = None if relation is None else _first(names, _RELATION_NAMES, {*used, relation})
    return TripleColumns(head, relation, tail, name, _first(names, _SPLIT, used))


def _paired_ends(names: Sequence[str]) -> tuple[EndColumns, EndColumns] | None:
    """The ends of the first pair that is there in full: beside from and to, `source` says where a fact is from."""
    for pair in _ENDS:
        head, tail = (_end(names, end) for end in pair)
        if head is not None and tail is not None:
            return head, tail
    return None


def _any_ends(names: Sequence[str]) -> tuple[EndColumns | None, EndColumns | None]:
    head, tail = (next(filter(None, (_end(names, pair[side]) for pair in _ENDS)), None) for side in (0, 1))
    return head, tail


def _end(names: Sequence[str], end: str) -> EndColumns | None:
    suffixes = _NUMBERED_ID_SUFFIXES if end in _ONLY_WITH_SUFFIX else _ID_SUFFIXES
    found = _suffixed(names, end, suffixes, set())
    if found is None:
        return None
    name, description, type_ = (
        _suffixed(names, end, each, {found}) for each in (_NAME_SUFFIXES, _DESCRIPTION_SUFFIXES, _TYPE_SUFFIXES)
    )
    return EndColumns(found, name, description, type_)


def _suffixed(names: Sequence[str], end: str, suffixes: Sequence[str], used: set[int]) -> int | None:
    wanted = [end + suffix for suffix in suffixes if suffix or end not in _ONLY_WITH_SUFFIX]
    return _first(names, wanted, used)


def _first(names: Sequence[str], wanted: Sequence[str], used: set[int]) -> int | None:
    """The position of the first wanted name that the header has and that says nothing else yet."""
    positions = (names.index(name) for name in wanted if name in names)
    return next((position for position in positions if position not in used), None)


def is_triple_header(names: tuple[str, ...]) -> bool:
    """Whether a first row names the columns of triples, or of edges that are all of one kind."""
    found = triple_columns(names)
    if isinstance(found, list):
        return len(_UNMISTAKABLE.intersection(names)) >= 2
    return found.relation is not None or all(len(names[end.id]) > 1 for end in (found.head, found.tail))


def is_text_header(names: tuple[str, ...]) -> bool:
    """Whether a first row names columns: one such word alone may be an entity, as WordNet's node, label and class."""
    return "id" in names or names in _LIST_HEADERS or len(_TEXT_HEADER.intersection(names)) >= 2


def text_columns(names: Sequence[str]) -> dict[str, int | None]:
    """Where a header says id, name, description and type."""
    return {role: _first(names, wanted, set()) for role, wanted in _text_roles()}


def _text_roles() -> Iterator[tuple[str, Sequence[str]]]:
    yield from (("id", _ID), ("name", _NAME), ("description", _DESCRIPTION), ("type", _TYPE))
