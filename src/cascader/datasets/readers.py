"""People's own graphs: a folder, a file of triples, or an archive of either."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from cascader.datasets.archives import ARCHIVE_SUFFIXES, unpack
from cascader.datasets.layout import SUFFIXES, Layout, find_layout
from cascader.datasets.splits import Split, split_triples
from cascader.datasets.text_tables import read_text_table
from cascader.datasets.texts import Texts
from cascader.datasets.triples import Statements, read_statements
from cascader.errors import DataError
from cascader.graph import SPLITS, KnowledgeGraph, Triples
from cascader.graph.arrays import frozen_triples, triple_keys

logger = logging.getLogger(__name__)

_NONE = frozen_triples([])


def read_graph(
    path: str | Path,
    *,
    entities: str | Path | None = None,
    relations: str | Path | None = None,
    split: Split | None = None,
    name: str = "",
) -> KnowledgeGraph:
    """Read a graph from a folder, a file or an archive.

    A folder holds `train`, `valid` and `test`, or `triples` in one piece, and optionally `entities` and `relations`,
    as .tsv, .txt, .csv, .parquet, .nt or .ttl. What comes in one piece is split as `split` says.

    >>> import tempfile
    >>> from cascader import write_graph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_graph(kg, f"{folder}/drugs")
    ...     read_graph(path, split=Split(valid=0, test=0))
    KnowledgeGraph('drugs', 3 entities, 1 relation, 2/0/0 triples)
    """
    path = Path(path)
    named = {"entities": entities, "relations": relations}
    tables = {role: Path(table) for role, table in named.items() if table is not None}
    name = name or _name_of(path)
    if path.is_dir():
        return _read(replace(find_layout(path), **tables), split or Split(), name)
    if not path.exists():
        raise DataError(f"there is no file or folder {path}. Check the path; `cascader data list` names what we know.")
    if path.name.lower().endswith(ARCHIVE_SUFFIXES):
        return _read_archive(path, tables, split or Split(), name)
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} has an unknown suffix. Expected one of {', '.join((*SUFFIXES, *ARCHIVE_SUFFIXES))}.")
    return _read(Layout(triples=path, **tables), split or Split(), name)


def _name_of(path: Path) -> str:
    """What to call a graph: its file without the suffix, in characters that every file system and JSON can hold."""
    name = path.resolve().name
    suffixes = (suffix for suffix in (*ARCHIVE_SUFFIXES, *SUFFIXES) if name.lower().endswith(suffix))
    longest = max(suffixes, key=len, default="")
    return name[: len(name) - len(longest)].encode(errors="replace").decode() or "graph"


def _read_archive(path: Path, tables: dict[str, Path], how: Split, name: str) -> KnowledgeGraph:
    with tempfile.TemporaryDirectory(prefix="cascader-") as folder:
        try:
            unpack(path, Path(folder))
            return _read(replace(find_layout(_inner(Path(folder))), **tables), how, name)
        except DataError as error:  # who asked knows the archive, not where it was unpacked
            raise DataError(str(error).replace(folder, str(path))) from error


def _inner(folder: Path) -> Path:
    """The folder inside the folders that an archive wraps around its files."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return _inner(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def _read(layout: Layout, how: Split, name: str) -> KnowledgeGraph:
    entities = Index.of_file("entity", layout.entities)
    relations = Index.of_file("relation", layout.relations)
    statements = {
        role: read_statements(path, entities.texts, relations.texts)
        for role in ("train", "valid", "test", "triples")
        if (path := getattr(layout, role)) is not None
    }
    return assembled(statements, entities, relations, how, name)


def assembled(
    statements: Mapping[str, Statements], entities: "Index", relations: "Index", how: Split, name: str
) -> KnowledgeGraph:
    """The graph of all that was read: statements by role, which are train, valid and test, or triples in one piece."""
    parts = [_Part(role, stated, entities, relations) for role, stated in statements.items()]
    _check_no_overlap(parts, len(entities.ids), len(relations.ids))
    train, valid, test = _three({part.role: part.distinct() for part in parts}, how)
    return KnowledgeGraph(
        name,
        tuple(entities.texts.entity(id_) for id_ in entities.ids),
        tuple(relations.texts.relation(id_) for id_ in relations.ids),
        train,
        valid,
        test,
    )


class Index:
    """Numbers and texts for ids: those of a table if there is one, and then no others; else by first appearance."""

    def __init__(self, kind: str, texts: Texts, ids: Sequence[str] = (), table: str | None = None) -> None:
        self._kind = kind
        self._table = table  # what errors call it; None: any id is welcome
        self.texts = texts
        self.ids = {id_: number for number, id_ in enumerate(ids)}

    @classmethod
    def of_file(cls, kind: str, path: Path | None) -> "Index":
        """The ids and texts of a file, if there is one."""
        texts = Texts()
        return cls(kind, texts) if path is None else cls(kind, texts, read_text_table(path, texts), str(path))

    def of(self, id_: str, row: int, statements: Statements) -> int:
        """The number of an id that stands in a row."""
        if self._table is not None and id_ not in self.ids:
            raise DataError(
                f"{statements.where(row)}: {self._kind} {id_!r} is not in {self._table} ({len(self.ids):,} rows). "
                "Add it there, or drop the triple."
            )
        return self.ids.setdefault(id_, len(self.ids))


class _Part:
    """One file's triples as numbers, and where each stands."""

    def __init__(self, role: str, statements: Statements, entities: Index, relations: Index) -> None:
        self.role = role
        self.where = statements.where
        self.triples = frozen_triples(
            [
                (
                    entities.of(head, row, statements),
                    relations.of(relation, row, statements),
                    entities.of(tail, row, statements),
                )
                for row, (head, relation, tail) in enumerate(statements.triples)
            ]
        )

    def distinct(self) -> Triples:
        """Every triple once, at its first place."""
        _, first = np.unique(self.triples, axis=0, return_index=True)
        repeated = len(self.triples) - len(first)
        if repeated:
            logger.warning("left out %s triples of %s that stand there twice.", f"{repeated:,}", self.role)
        return self.triples[np.sort(first)]


def _check_no_overlap(parts: list[_Part], entity_count: int, relation_count: int) -> None:
    for part, later in combinations(parts, 2):
        keys, later_keys = (triple_keys(p.triples, entity_count, relation_count) for p in (part, later))
        shared, rows, later_rows = np.intersect1d(keys, later_keys, return_indices=True)
        if len(shared):
            first = later_rows.argmin()
            raise DataError(
                f"{later.where(later_rows[first])}: this triple of {later.role} stands in {part.role} too, at "
                f"{part.where(rows[first])} ({len(shared):,} such triples). Remove them from one of the two: "
                "a model must not be tested on what it was shown."
            )


def _three(parts: dict[str, Triples], how: Split) -> tuple[Triples, Triples, Triples]:
    """Train, valid and test: the user's own where there are any, the rest held back here."""
    if "triples" in parts or parts.keys() == {"train"}:
        return split_triples(parts.get("triples", parts.get("train", _NONE)), how)
    train, valid, test = (parts.get(role, _NONE) for role in SPLITS)
    if "valid" not in parts and how.valid:
        logger.warning("there is no valid file: holding back %g of train for it.", how.valid)
        train, valid, _ = split_triples(train, replace(how, test=0.0))
    return train, valid, test
