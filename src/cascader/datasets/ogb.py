"""The folder of an OGB link dataset: edges by number under raw/, and what the numbers mean under mapping/.

OGB keeps valid and test as pickles, which are never read. What this module writes has them as tables instead.
"""

import gzip
import io
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from cascader.datasets.archives import read_gzip
from cascader.datasets.statements import ONLY_RELATION, Statements
from cascader.datasets.tables import Table, parse_table, write_rows
from cascader.datasets.texts import Texts
from cascader.datasets.triples import Index
from cascader.errors import DataError
from cascader.graph import KnowledgeGraph

logger = logging.getLogger(__name__)

_EDGES, _KINDS = "raw/edge.csv.gz", "raw/edge_reltype.csv.gz"
#: Where each kind of edge has a folder of its own, named head type, relation, tail type: ogbl-biokg.
_TYPED, _TYPED_NAME = "raw/relations", "___"
_NODES, _RELATIONS = "mapping/nodeidx2entityid.csv.gz", "mapping/reltype2relid.csv.gz"
_SPLITS = {split: f"split/given/{split}.csv.gz" for split in ("valid", "test")}
_TEXT_COLUMNS = ("name", "description", "type")

_Parts = tuple[dict[str, Statements], Index, Index]


def is_folder(folder: Path) -> bool:
    """Whether this is a folder of OGB."""
    return (folder / _EDGES).is_file() or (folder / _TYPED).is_dir()


def read(folder: Path) -> _Parts:
    """The triples, and the ids and texts of entities and relations."""
    parts = _read_typed(folder) if (folder / _TYPED).is_dir() else _read_plain(folder)
    if "valid" not in parts[0] and (folder / "split").is_dir():
        logger.warning(
            "%s: OGB keeps valid and test as pickles, which are never read. Other triples are held out, so figures "
            "cannot be compared with those of OGB's leaderboard.",
            folder,
        )
    return parts


def _read_plain(folder: Path) -> _Parts:
    """Edges that are numbered over all nodes, and a relation for each of them: ogbl-wikikg2."""
    entities, relations = _Mapping(folder / _NODES), _Mapping(folder / _RELATIONS)
    edges = _numbers(folder / _EDGES, 2)
    has_kinds = (folder / _KINDS).is_file()
    kinds = [kind for (kind,) in _numbers(folder / _KINDS, 1)] if has_kinds else [None] * len(edges)
    _check_lengths(folder / _KINDS, len(kinds), len(edges))
    triples = [
        (entities.id(head), ONLY_RELATION if kind is None else relations.id(kind), entities.id(tail))
        for (head, tail), kind in zip(edges, kinds, strict=True)
    ]
    statements = {"train": Statements.of(triples, lambda row: f"{folder / _EDGES}:{row + 1}")}
    for split, file in _SPLITS.items():
        if (folder / file).is_file():
            statements[split] = _held_out(folder / file, entities, relations)
    return statements, entities.index("entity"), relations.index("relation")


def _held_out(path: Path, entities: "_Mapping", relations: "_Mapping") -> Statements:
    triples = [(entities.id(head), relations.id(kind), entities.id(tail)) for head, kind, tail in _numbers(path, 3)]
    return Statements.of(triples, lambda row: f"{path}:{row + 1}")


def _read_typed(folder: Path) -> _Parts:
    """A folder for each kind of edge, whose nodes are numbered within their type: ogbl-biokg."""
    triples: list[tuple[str, str, str]] = []
    mappings: dict[str, _Mapping] = {}
    for kind in sorted(path for path in (folder / _TYPED).iterdir() if path.is_dir()):
        names = kind.name.split(_TYPED_NAME)
        if len(names) != 3:
            raise DataError(f"{kind}: expected a folder named HEAD{_TYPED_NAME}RELATION{_TYPED_NAME}TAIL. Rename it.")
        for type_ in (names[0], names[2]):
            if type_ not in mappings:
                mappings[type_] = _Mapping(folder / f"mapping/{type_}_entidx2name.csv.gz", type_)
        head, tail = mappings[names[0]], mappings[names[2]]
        triples += [(head.id(h), names[1], tail.id(t)) for h, t in _numbers(kind / "edge.csv.gz", 2)]
    texts = Texts()
    for mapping in mappings.values():
        mapping.add_to(texts)
    statements = Statements.of(triples, lambda row: f"{folder / _TYPED}, edge {row + 1}")
    return {"triples": statements}, Index("entity", texts), Index("relation", Texts())


class _Mapping:
    """What the numbers of nodes or relations mean; without its file, a number is its own id."""

    def __init__(self, path: Path, type_: str = "") -> None:
        self._path = path
        self._type = type_
        self._rows = _by_number(_table(path)) if path.is_file() else None

    def id(self, number: int) -> str:
        """The id of a number; ids of different types may be the same, hence the type before it."""
        prefix = f"{self._type}:" if self._type else ""
        return f"{prefix}{number if self._rows is None else self._row(number)[0]}"

    def _row(self, number: int) -> list[str]:
        assert self._rows is not None  # noqa: S101 - callers check
        if number not in self._rows:
            raise DataError(f"{self._path} does not say what {number} is. Restore the rows that are missing.")
        return self._rows[number]

    def add_to(self, texts: Texts) -> None:
        """Add the names, descriptions and types of all numbers."""
        for number, (name, *others) in (self._rows or {}).items():
            id_ = self.id(number)
            found = [*others, "", "", ""][:3]
            texts.names.offer(id_, found[0] or name)
            texts.descriptions.offer(id_, found[1])
            texts.types.offer(id_, found[2] or self._type)

    def index(self, kind: str) -> Index:
        """The ids in the order of their numbers."""
        texts = Texts()
        self.add_to(texts)
        ids = [self.id(number) for number in sorted(self._rows or ())]
        return Index(kind, texts, ids, str(self._path) if ids else None)


def _by_number(table: Table) -> dict[int, list[str]]:
    """Id, name, description and type by number, as far as the table has them."""
    columns = [1, *(column for name in _TEXT_COLUMNS if (column := table.column([name])) is not None)]
    rows = {}
    for row, fields in enumerate(table.rows):
        if table.width < 2 or not fields[0].strip().isdecimal():
            raise DataError(f"{table.where(row)}: found {fields[:2]}, expected a number and what it stands for.")
        rows[int(fields[0])] = [fields[column].strip() for column in columns]
    return rows


def _table(path: Path) -> Table:
    label = str(path).removesuffix(".gz")
    return parse_table(io.BytesIO(read_gzip(path)), label, lambda names: not names[0].isdecimal())


def _numbers(path: Path, width: int) -> list[tuple[int, ...]]:
    """The rows of a table of numbers without a header."""
    rows = []
    for number, line in enumerate(read_gzip(path).decode(errors="replace").splitlines(), start=1):
        fields = line.split(",")
        if len(fields) != width or not all(field.strip().isdecimal() for field in fields):
            raise DataError(f"{path}:{number}: found {line[:60]!r}, expected {width} whole numbers, with commas.")
        rows.append(tuple(map(int, fields)))
    return rows


def _check_lengths(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"{path} has {found:,} rows, expected {expected:,}, one for each edge. Download it again.")


def write(kg: KnowledgeGraph, folder: Path) -> None:
    """Write train as the edges, as OGB has it, and valid and test as tables of numbers beside it."""
    train = kg.train.tolist()
    _write(folder / _EDGES, [(head, tail) for head, _, tail in train])
    _write(folder / _KINDS, [(relation,) for _, relation, _ in train])
    _write(folder / "raw/num-node-list.csv.gz", [(len(kg.entities),)])
    _write(folder / "raw/num-edge-list.csv.gz", [(len(train),)])
    _write(folder / _NODES, [("node idx", "entity id", *_TEXT_COLUMNS), *_numbered(kg.entities)])
    _write(folder / _RELATIONS, [("reltype", "rel id", "name"), *_numbered(kg.relations)])
    for split, file in _SPLITS.items():
        _write(folder / file, kg.split("valid" if split == "valid" else "test").tolist())


def _numbered(things: Sequence[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    return ((str(number), *thing) for number, thing in enumerate(things))


def _write(path: Path, rows: Iterable[Sequence[object]]) -> None:
    stream = io.StringIO()
    write_rows(stream, [[str(cell) for cell in row] for row in rows], ",")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(stream.getvalue().encode(), mtime=0))
