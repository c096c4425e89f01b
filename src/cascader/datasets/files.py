"""A graph and its files: load it by name, from a folder, a file or an archive; save it so that it loads unchanged.

An empty split has no file; to keep it empty, load with `Split(valid=0, test=0)`.
"""

import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from cascader.datasets import rdf
from cascader.datasets.archives import ARCHIVE_SUFFIXES, unpack
from cascader.datasets.catalog import CATALOG
from cascader.datasets.rdf import RDF_SUFFIXES, read_rdf
from cascader.datasets.tables import TABLE_SUFFIXES, Texts, is_text_header, read_table, write_rows
from cascader.datasets.triples import Index, Split, assemble, read_statements
from cascader.errors import DataError
from cascader.graph import SPLITS, KnowledgeGraph, SplitName
from cascader.storage import atomic_folder, write_parquet

logger = logging.getLogger(__name__)

Format = Literal["tsv", "csv", "parquet", "ntriples", "turtle"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SUFFIXES = (*TABLE_SUFFIXES, *RDF_SUFFIXES)
#: The file names, without suffix, that say what a file of a folder contains.
_ROLES = {
    "train": ("train",),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
    "triples": ("triples", "edges", "graph", "kg", "facts"),
    "entities": ("entities", "entity", "nodes", "entity_text", "entity2text"),
    "relations": ("relations", "relation", "relation_text", "relation2text"),
}
#: The columns of the tables that are written.
_TRIPLE = ("head", "relation", "tail")
_ENTITY = ("id", "name", "description", "type")
_RELATION = ("id", "name")


def load_graph(
    name_or_path: str | Path,
    *,
    entities: str | Path | None = None,
    relations: str | Path | None = None,
    split: Split = Split(),
    name: str | None = None,
) -> KnowledgeGraph:
    """Load a graph from a folder, file or archive, or by its name in the catalog, such as "codex-s".

    A folder contains `train`, `valid` and `test`, or all `triples` in one file, and optionally `entities` and
    `relations`, as .tsv, .txt, .csv, .parquet, .nt or .ttl. A graph in one file is split as `split` says. A file or
    folder takes precedence over a catalog graph of the same name.

    >>> import tempfile
    >>> from cascader import save_graph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_graph(kg, f"{folder}/drugs")
    ...     load_graph(path, split=Split(valid=0, test=0))
    KnowledgeGraph('drugs', 3 entities, 1 relation, 2/0/0 triples)
    """
    path = Path(name_or_path)
    tables = {"entities": entities, "relations": relations}
    given = {role: Path(table) for role, table in tables.items() if table is not None}
    if path.exists():
        return _read_path(path, given, split, name or _name_of(path))
    dataset = CATALOG.get(str(name_or_path).lower())
    if dataset is None:
        raise DataError(
            f"there is no file or folder {path}, and no graph of that name: the catalog has {', '.join(CATALOG)}. "
            "Check the path."
        )
    if given or split != Split():
        raise DataError(
            f"{dataset.name} is a graph of the catalog, with its own texts and splits. Tables and splits can be "
            "chosen for your own graphs only."
        )
    kg = dataset.load()
    return kg if name is None else replace(kg, name=name)


def _read_path(path: Path, tables: dict[str, Path], split: Split, name: str) -> KnowledgeGraph:
    if path.is_dir():
        return _read(replace(_find_layout(path), **tables), split, name)
    if path.name.lower().endswith(ARCHIVE_SUFFIXES):
        return _read_archive(path, tables, split, name)
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path} has an unknown suffix, expected one of {', '.join((*_SUFFIXES, *ARCHIVE_SUFFIXES))}.")
    return _read(_Layout(triples=path, **tables), split, name)


def _name_of(path: Path) -> str:
    """The file's name without its suffix, in characters that every file system and JSON can represent."""
    name = path.resolve().name
    suffixes = (suffix for suffix in (*ARCHIVE_SUFFIXES, *_SUFFIXES) if name.lower().endswith(suffix))
    longest = max(suffixes, key=len, default="")
    return name[: len(name) - len(longest)].encode(errors="replace").decode() or "graph"


def _read_archive(path: Path, tables: dict[str, Path], split: Split, name: str) -> KnowledgeGraph:
    with tempfile.TemporaryDirectory(prefix="cascader-") as folder:
        try:
            unpack(path, Path(folder))
            return _read(replace(_find_layout(_inner(Path(folder))), **tables), split, name)
        except DataError as error:  # the caller knows the archive, not the temporary folder
            raise DataError(str(error).replace(folder, str(path))) from error


def _inner(folder: Path) -> Path:
    """The innermost of the folders that an archive wraps around its files."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return _inner(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


@dataclass(frozen=True)
class _Layout:
    """The files of a graph: either `triples` or `train`, and whichever of the others exist."""

    train: Path | None = None
    valid: Path | None = None
    test: Path | None = None
    triples: Path | None = None
    entities: Path | None = None
    relations: Path | None = None


def _find_layout(folder: Path) -> _Layout:
    """Tell the files of a folder apart by their names; a single file with any other name is the triples."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in _SUFFIXES)
    found: dict[str, Path] = {}
    others: list[Path] = []
    for path in files:
        role = next((role for role, names in _ROLES.items() if path.stem.lower() in names), None)
        if role is None:
            others.append(path)
        elif role in found:
            raise DataError(f"{folder} has both {found[role].name} and {path.name} for {role}. Keep one of them.")
        else:
            found[role] = path
    if "train" not in found and "triples" not in found:
        found["triples"] = _only(folder, others)
    elif others:
        logger.warning("%s: ignored %s.", folder, ", ".join(path.name for path in others))
    _check_one_split(folder, found)
    return _Layout(**found)


def _check_one_split(folder: Path, found: dict[str, Path]) -> None:
    for role in ("train", "valid", "test"):
        if "triples" in found and role in found:
            raise DataError(
                f"{folder} has both {found['triples'].name} and {found[role].name}. Rename the first to train to keep "
                "your own split, or remove the second to have the first one split for you."
            )


def _only(folder: Path, files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    expected = f"Expected train, valid and test, or triples, with one of the suffixes {', '.join(_SUFFIXES)}."
    if not files:
        raise DataError(f"{folder} has no file of triples. {expected}")
    raise DataError(f"{folder}: which of {', '.join(path.name for path in files)} contains the triples? {expected}")


def _read(layout: _Layout, split: Split, name: str) -> KnowledgeGraph:
    entities = _read_index("entity", layout.entities)
    relations = _read_index("relation", layout.relations)
    statements = {
        role: read_statements(path, entities.texts, relations.texts)
        for role in ("train", "valid", "test", "triples")
        if (path := getattr(layout, role)) is not None
    }
    return assemble(statements, entities, relations, split, name)


def _read_index(kind: str, path: Path | None) -> Index:
    """The ids and texts of a table, or an index open to any id if there is none."""
    texts = Texts()
    if path is None:
        return Index(kind, texts)
    if path.suffix.lower() in RDF_SUFFIXES:
        read_rdf(path, texts)
        ids = list(dict.fromkeys([*texts.names.ids(), *texts.descriptions.ids()]))
    else:
        ids = texts.add_table(read_table(path, is_text_header))
    return Index(kind, texts, ids, table=str(path))


def save_graph(kg: KnowledgeGraph, folder: str | Path, format: Format = "tsv") -> Path:
    """Save train, valid, test, entities and relations to a new folder, which appears only when it is complete.

    >>> import tempfile
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = save_graph(kg, f"{folder}/drugs", "csv")
    ...     sorted(path.name for path in saved.iterdir())
    ['entities.csv', 'relations.csv', 'train.csv']
    """
    write = {
        "tsv": _write_tsv,
        "csv": _write_csv,
        "parquet": _write_parquet,
        "ntriples": _write_nt,
        "turtle": _write_ttl,
    }
    if format not in write:
        raise DataError(f"there is no format {format!r}. Choose one of: {', '.join(FORMATS)}.")
    with atomic_folder(Path(folder)) as temporary:
        write[format](kg, temporary)
    return Path(folder)


def _links(kg: KnowledgeGraph, split: SplitName) -> list[tuple[str, str, str]]:
    return [
        (kg.entities[head].id, kg.relations[relation].id, kg.entities[tail].id)
        for head, relation, tail in kg.split(split).tolist()
    ]


def _write_tables(kg: KnowledgeGraph, write: Callable[[str, Sequence[str], Sequence[Sequence[str]]], None]) -> None:
    for split in SPLITS:
        if len(kg.split(split)):
            write(split, _TRIPLE, _links(kg, split))
    write("entities", _ENTITY, kg.entities)
    write("relations", _RELATION, kg.relations)


def _write_delimited(kg: KnowledgeGraph, folder: Path, suffix: str, delimiter: str) -> None:
    def write(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        with (folder / f"{name}{suffix}").open("w", encoding="utf-8", newline="") as stream:
            write_rows(stream, [header, *rows], delimiter)

    _write_tables(kg, write)


def _write_tsv(kg: KnowledgeGraph, folder: Path) -> None:
    _write_delimited(kg, folder, ".tsv", "\t")


def _write_csv(kg: KnowledgeGraph, folder: Path) -> None:
    _write_delimited(kg, folder, ".csv", ",")


def _write_parquet(kg: KnowledgeGraph, folder: Path) -> None:
    def write(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        columns = zip(*rows, strict=True) if rows else [[] for _ in header]
        write_parquet(folder / f"{name}.parquet", dict(zip(header, map(list, columns), strict=True)))

    _write_tables(kg, write)


def _write_rdf(kg: KnowledgeGraph, folder: Path, suffix: str) -> None:
    for split in SPLITS:
        if len(kg.split(split)):
            rdf.write_links(folder / f"{split}{suffix}", _links(kg, split))
    rdf.write_entities(folder / f"entities{suffix}", kg.entities)
    rdf.write_relations(folder / f"relations{suffix}", kg.relations)


def _write_nt(kg: KnowledgeGraph, folder: Path) -> None:
    _write_rdf(kg, folder, ".nt")


def _write_ttl(kg: KnowledgeGraph, folder: Path) -> None:
    _write_rdf(kg, folder, ".ttl")
