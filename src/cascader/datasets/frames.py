"""Data frames in and out: pandas, and as input anything with the same interface."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cascader.datasets.files import Columns
from cascader.datasets.statements import Statements, chosen_columns, statements_of
from cascader.datasets.tables import Table, table_of_columns
from cascader.datasets.texts import Texts
from cascader.datasets.triples import Index, Split, assemble
from cascader.errors import DataError, MissingExtraError
from cascader.graph import KnowledgeGraph

if TYPE_CHECKING:
    import pandas


class Frame(Protocol):
    """Columns by name, as pandas and polars have them."""

    @property
    def columns(self) -> Iterable[Any]:
        """The names of the columns."""
        ...

    def __getitem__(self, name: Any, /) -> Any:  # noqa: ANN401 - a column of any library
        """A column by its name."""
        ...


class HasRow(Protocol):
    """What can become a row of a frame: a prediction or a verdict."""

    def as_row(self) -> dict[str, Any]:
        """Values by column."""
        ...


def graph_from_frames(
    triples: Frame,
    *,
    valid: Frame | None = None,
    test: Frame | None = None,
    entities: Frame | None = None,
    relations: Frame | None = None,
    split: Split = Split(),
    name: str = "graph",
    columns: Columns | None = None,
) -> KnowledgeGraph:
    """Build a graph from data frames: triples with the columns head, relation and tail.

    `entities` has an id column and optionally name, description and type; `relations` has id and name. Names and types
    may also stand beside the ids, as in PrimeKG. `columns` names those of head, relation and tail if they are called
    otherwise. Without `valid` and `test`, triples are held out for them as `split` says.

    >>> import pandas
    >>> triples = pandas.DataFrame({"head": ["aspirin", "ibuprofen"], "relation": "treats", "tail": ["pain", "fever"]})
    >>> graph_from_frames(triples, split=Split(valid=0, test=0))
    KnowledgeGraph('graph', 4 entities, 1 relation, 2/0/0 triples)
    """
    is_unsplit = valid is None and test is None
    frames = {"triples" if is_unsplit else "train": triples, "valid": valid, "test": test}
    indices = (_index("entity", "entities", entities), _index("relation", "relations", relations))
    statements = {
        role: _statements(_table(frame, role), columns, *indices) for role, frame in frames.items() if frame is not None
    }
    return assemble(statements, *indices, split, name)


def _statements(table: Table, columns: Columns | None, entities: Index, relations: Index) -> Statements:
    chosen = None if columns is None else chosen_columns(table, columns)
    return statements_of(table, entities.texts, relations.texts, chosen)


def triples_of(frame: Frame) -> list[tuple[str, str, str]]:
    """The triples in the columns head, relation and tail of a frame."""
    return statements_of(_table(frame, "triples")).triples


def to_frame(rows: Iterable[HasRow]) -> "pandas.DataFrame":
    """Predictions or verdicts as a pandas data frame, one per row: `to_frame(run.predict("aspirin", "treats"))`.

    >>> from cascader import Entity, Relation, Verdict
    >>> verdict = Verdict(Entity("d1", "aspirin"), Relation("r1", "treats"), Entity("s1", "pain"), 0.7, 0.5, False)
    >>> list(to_frame([verdict]).columns)
    ['head', 'relation', 'tail', 'probability', 'threshold', 'is_true', 'is_known']
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "data frames need pandas. Install it with: pip install 'cascader[pandas]', or call as_row() on each row."
        ) from error
    return pandas.DataFrame([row.as_row() for row in rows])


def _index(kind: str, role: str, frame: Frame | None) -> Index:
    texts = Texts()
    if frame is None:
        return Index(kind, texts)
    return Index(kind, texts, texts.add_table(_table(frame, role)), table=_label(role))


def _table(frame: Frame, role: str) -> Table:
    names = getattr(frame, "columns", None)
    if names is None or isinstance(frame, Mapping):
        raise DataError(
            f"{role} is a {type(frame).__name__}, expected a data frame. Convert it with: pandas.DataFrame({role})"
        )
    return table_of_columns(_label(role), {str(name): _values(frame[name]) for name in names}, is_frame=True)


def _label(role: str) -> str:
    return f"the frame of {role}"


def _values(column: Iterable[Any]) -> list[Any]:
    """Plain Python values, with None for each of the ways in which pandas marks a missing one."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    if not hasattr(column, "isna"):
        return list(values)
    return [None if is_missing else value for value, is_missing in zip(values, column.isna(), strict=True)]
