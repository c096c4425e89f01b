"""Questions and triples from files, every question that makes sense for a graph, and questions about new entities."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from cascader.cascade import Cascade
from cascader.datasets import Frame, triples_of
from cascader.datasets.columns import is_triple_header, triple_columns
from cascader.datasets.statements import read_statements
from cascader.datasets.tables import Table, read_table
from cascader.errors import DataError
from cascader.graph import Entity, FloatArray, KnowledgeGraph, Queries, Side
from cascader.models.model import Model
from cascader.scoring import Scorer
from cascader.tuning.witnesses import Labels
from cascader.wording import counted

_ENTITY = ("entity", "anchor", "head", "subject", "id", "name")
_RELATION = ("relation", "predicate", "r")
_SIDE = ("side",)
_LABEL = ("label", "labels", "is_true", "truth", "true", "decision")
_LABELS = dict.fromkeys(("1", "1.0", "true", "yes", "t", "y", "accepted"), True)
_LABELS |= dict.fromkeys(("0", "0.0", "-1", "false", "no", "f", "n", "rejected"), False)
#: What stands for the answer that is asked for, in a triple.
_UNKNOWN = "?"

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
            more = f" ({counted(len(self.problems) - 1, 'more bad row')}.)" if len(self.problems) > 1 else ""
            raise DataError(f"{self.problems[0]}{more} Correct the file, or skip such rows with --keep-going.")
        return self.found


def read_questions(path: Path, kg: KnowledgeGraph, side: Side = "tail") -> Rows[Queries]:
    """Read questions from a table with the columns entity, relation and, optionally, side.

    A row of head, relation and tail, one end of which is a question mark, is a question, too.
    """
    table = read_table(path, _is_header)
    columns = _columns(table)

    def ask(fields: list[str]) -> Queries:
        if len(fields) >= 3 and _UNKNOWN in (texts := [field.strip() for field in _triple(table, fields)]):
            return _asked(kg, *texts)
        entity, relation, *own_side = (fields[column].strip() for column in columns)
        return kg.query(entity, relation, (own_side[0] if own_side and own_side[0] else side))  # type: ignore[arg-type]

    return Rows.of(ask, table.rows, table.where)


def _is_header(names: tuple[str, ...]) -> bool:
    return (any(name in names for name in _ENTITY) and "relation" in names) or is_triple_header(names)


def _triple(table: Table, fields: list[str]) -> list[str]:
    """Head, relation and tail: by their names, or the first three columns."""
    found = triple_columns(table.header) if table.header is not None else []
    if isinstance(found, list) or found.relation is None:
        return fields[:3]
    return [fields[column] for column in (found.head.id, found.relation, found.tail.id)]


def _asked(kg: KnowledgeGraph, head: str, relation: str, tail: str) -> Queries:
    """The question that a triple with a question mark in place of its head or its tail asks."""
    if relation == _UNKNOWN or head == tail:
        raise DataError(
            f"({head}, {relation}, {tail}) asks for more than one thing. Put one question mark in place of the head or "
            "the tail."
        )
    return kg.query(head, relation, "tail") if tail == _UNKNOWN else kg.query(tail, relation, "head")


def _columns(table: Table) -> list[int]:
    if table.header is not None:
        found = [table.column(names) for names in (_ENTITY, _RELATION, _SIDE)]
        columns = [column for column in found if column is not None]
        if None not in found[:2]:
            return columns
    elif table.width in (2, 3):
        return list(range(table.width))
    raise DataError(
        f"{table.where(0)}: found {counted(table.width, 'column')}, expected entity, relation "
        "and, optionally, side. Separate columns with tabs (.tsv, .txt) or commas (.csv)."
    )


def read_triples(path: Path, kg: KnowledgeGraph) -> Rows[tuple[int, int, int]]:
    """Read triples from a file, by id or name, as indices."""
    statements = read_statements(path)

    def resolve(triple: tuple[str, str, str]) -> tuple[int, int, int]:
        head, relation, tail = triple
        return kg.entity_index(head), kg.relation_index(relation), kg.entity_index(tail)

    return Rows.of(resolve, statements.triples, statements.where)


class LabelledRow(NamedTuple):
    """A triple as indices, whether it is true, and where that is said."""

    head: int
    relation: int
    tail: int
    is_true: bool
    where: str


def read_labels(path: Path, kg: KnowledgeGraph) -> Rows[LabelledRow]:
    """Read labelled triples, by id or name: head, relation, tail and label."""
    table = read_table(path, lambda names: is_triple_header(names) and any(name in names for name in _LABEL))
    label = table.column(_LABEL) if table.header is not None else 3
    if label is None or table.width < 4:
        raise DataError(
            f"{table.where(0)}: found {'no column for the label' if table.width > 3 else f'{table.width} columns'}, "
            "expected head, relation, tail and label, which is 1 or 0, true or false, yes or no."
        )

    def resolve(place: int) -> LabelledRow:
        fields = table.rows[place]
        head, relation, tail = (text.strip() for text in _triple(table, fields))
        return _labelled(kg, head, relation, tail, fields[label], table.where(place))

    return Rows.of(resolve, range(len(table.rows)), table.where)


def labels_of(given: Sequence[tuple[str, str, str, bool]] | Frame, kg: KnowledgeGraph) -> Labels:
    """Resolve labelled triples: rows of head, relation, tail and label, or a data frame with such columns."""
    rows: Sequence[tuple[str, str, str, object]]
    if isinstance(given, Sequence):
        rows = given
    else:
        name = next((name for name in given.columns if str(name).lower() in _LABEL), None)
        if name is None:
            raise DataError(f"the data frame has the columns {', '.join(map(str, given.columns))}, and no label.")
        rows = [(*triple, label) for triple, label in zip(triples_of(given), given[name], strict=True)]
    return joined_labels(
        [_labelled(kg, h, r, t, str(label), f"row {row}") for row, (h, r, t, label) in enumerate(rows, start=1)]
    )


def joined_labels(rows: Sequence[LabelledRow]) -> Labels:
    """Collect the rows; what is said twice counts once, and what is contradicted is an error."""
    first: dict[tuple[int, int, int], LabelledRow] = {}
    for row in rows:
        earlier = first.setdefault(row[:3], row)
        if earlier.is_true != row.is_true:
            raise DataError(
                f"{row.where}: this triple is {'true' if row.is_true else 'false'} here and "
                f"{'true' if earlier.is_true else 'false'} in {earlier.where}. Decide for one, and delete the other."
            )
    triples = np.array(list(first), dtype=np.int32).reshape(-1, 3)
    return Labels(triples, np.array([row.is_true for row in first.values()], dtype=bool))


def _labelled(kg: KnowledgeGraph, head: str, relation: str, tail: str, label: str, where: str) -> LabelledRow:
    is_true = _LABELS.get(label.strip().lower())
    if is_true is None:
        raise DataError(f"{label!r} is not a label. Write 1 or 0, true or false, yes or no.")
    return LabelledRow(kg.entity_index(head), kg.relation_index(relation), kg.entity_index(tail), is_true, where)


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


@runtime_checkable
class ReadsNewTexts(Protocol):
    """A model that can compare new texts with those of the graph."""

    def nearness(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> FloatArray:
        """Compute the similarity of each new entity's text to that of every entity; shape (new, entities)."""
        ...


def parse_entity(text: str) -> Entity:
    """Parse a new entity from "name: description", or from a name alone.

    >>> parse_entity("zinc: a metal").description
    'a metal'
    """
    if not _is_text(text):
        raise DataError(f"{text!r} is not a text: it has bytes that are not UTF-8. Write the new entity in UTF-8.")
    name, _, description = (part.strip() for part in text.partition(":"))
    if not name:
        raise DataError(f"{text!r} does not name an entity. Write it as: name: description")
    return Entity(f"new:{name}", name, description)


def _is_text(text: str) -> bool:
    """Whether a text has characters only: what the command line cannot decode becomes half a character each."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def can_read_new(tiers: Mapping[str, Model]) -> bool:
    """Return whether any of the tiers can read the text of a new entity."""
    return any(isinstance(model, ReadsNewTexts) for model in tiers.values())


def for_new_entities(
    cascade: Cascade, tiers: Mapping[str, Model], entities: Sequence[Entity], kg: KnowledgeGraph
) -> Cascade:
    """Adapt a cascade to questions whose anchors are new entities, by position; its answers are entities of the graph.

    `tiers` are the models by name. Embeddings use the mean vector of the entities with the most similar texts. Tiers
    that can only judge by an entity's facts are left out; if no other can rank all entities, the reader of texts does.
    """
    reader = next((model for model in tiers.values() if isinstance(model, ReadsNewTexts)), None)
    if reader is None:
        raise DataError(
            "a new entity has only its text, and this run has no dual encoder to read it. Fit one with: "
            "cascader fit GRAPH --tiers kge,dual; the graph needs texts for that."
        )
    nearness = reader.nearness(entities, kg)
    views = _views({name: tiers[name] for name in cascade.scorers}, entities, kg, nearness)
    later = [replace(tier, scorer=views[tier.name]) for tier in cascade.tiers if tier.name in views]
    if cascade.name in views:
        return Cascade(views[cascade.name], tuple(later), name=cascade.name)
    if later and not later[0].reads_pairs:
        return Cascade(later[0].scorer, tuple(later[1:]), name=later[0].name)
    (name,) = (name for name, model in tiers.items() if model is reader)
    others = tuple(tier for tier in later if tier.name != name)
    return Cascade(tiers[name].for_new_entities(entities, kg, nearness), others, name=name)


def _views(
    tiers: Mapping[str, Model], entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray
) -> dict[str, Scorer]:
    """Adapt each tier; those that know nothing without facts, such as rules, are left out."""
    views = {}
    for name, model in tiers.items():
        with suppress(DataError):
            views[name] = model.for_new_entities(entities, kg, nearness)
    return views
