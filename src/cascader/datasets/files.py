"""A graph and its files: load it by name, from a folder, a file or an archive; save it so that it loads unchanged.

An empty split has no file; to keep it empty, load with `Split(valid=0, test=0)`.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from cascader.datasets import ogb, openke, rdf
from cascader.datasets.archives import ARCHIVE_SUFFIXES, unpack
from cascader.datasets.catalog import CATALOG
from cascader.datasets.columns import is_text_header
from cascader.datasets.id_spaces import shared_spaces
from cascader.datasets.layout import GRAPH_SUFFIXES, Layout, find_layout
from cascader.datasets.rdf import RDF_SUFFIXES, read_rdf
from cascader.datasets.statements import joined_statements, possible_header, read_statements
from cascader.datasets.tables import Table, read_table, write_rows
from cascader.datasets.texts import TEXT_ORDER, Texts
from cascader.datasets.triples import Index, Split, assemble
from cascader.errors import DataError
from cascader.graph import SPLITS, KnowledgeGraph, SplitName
from cascader.storage import CodedTexts, atomic_folder, write_parquet

Format = Literal["tsv", "csv", "parquet", "ntriples", "turtle", "kgx", "neo4j", "openke", "ogb"]
FORMATS: tuple[Format, ...] = get_args(Format)
#: The columns of head, relation and tail, by name or number.
Columns = tuple[str | int, str | int, str | int]

#: What reads a graph that is in memory, by an attribute that tells its library.
_READERS = {
    "is_multigraph": "graph_from_networkx(graph)",
    "mapped_triples": "graph_from_pykeen(training, validation, testing)",
    "columns": "graph_from_frames(triples)",
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
    columns: Columns | None = None,
) -> KnowledgeGraph:
    """Load a graph from a folder, file or archive, or by its name in the catalog, such as "codex-s".

    A folder contains `train`, `valid` and `test`, or all `triples` in one file, and optionally `entities` and
    `relations`, as .tsv, .txt, .csv, .parquet, .nt or .ttl; or it is one of KG-BERT, KGX, Neo4j, OpenKE or OGB. A graph
    in one file is split as `split` says. `columns` says which hold head, relation and tail, by name, if their header
    does not, or by number if there is no header. A file or folder takes precedence over a catalog graph of that name.

    >>> import tempfile
    >>> from cascader import save_graph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_graph(kg, f"{folder}/drugs")
    ...     load_graph(path, split=Split(valid=0, test=0))
    KnowledgeGraph('drugs', 3 entities, 1 relation, 2/0/0 triples)
    """
    _check_is_path(name_or_path)
    path = Path(name_or_path)
    tables = {"entities": entities, "relations": relations}
    given = {role: Path(table) for role, table in tables.items() if table is not None}
    if path.exists():
        return _read_path(path, given, split, name or _name_of(path), columns)
    dataset = CATALOG.get(str(name_or_path).lower())
    if dataset is None:
        raise DataError(
            f"there is no file or folder {path}, and no graph of that name: the catalog has {', '.join(CATALOG)}. "
            "Check the path."
        )
    if given or columns or split != Split():
        raise DataError(
            f"{dataset.name} is a graph of the catalog, with its own texts and splits. Tables and splits can be "
            "chosen for your own graphs only."
        )
    kg = dataset.load()
    return kg if name is None else replace(kg, name=name)


def _check_is_path(graph: object) -> None:
    """Refuse a graph that is in memory already, with the name of the function that reads it."""
    if isinstance(graph, (str, PathLike)):
        return
    readers = (how for attribute, how in _READERS.items() if hasattr(graph, attribute))
    how = "KnowledgeGraph.from_triples(triples)" if isinstance(graph, (list, tuple)) else next(readers, None)
    advice = "" if how is None else f" Make a graph of it with: cascader.{how}"
    raise DataError(f"found a {type(graph).__name__}, expected a name or a path.{advice}")


def _read_path(path: Path, tables: dict[str, Path], split: Split, name: str, columns: Columns | None) -> KnowledgeGraph:
    if path.is_dir():
        return _read_folder(path, tables, split, name, columns)
    if path.name.lower().endswith(ARCHIVE_SUFFIXES):
        return _read_archive(path, tables, split, name, columns)
    if path.suffix.lower() not in GRAPH_SUFFIXES:
        expected = ", ".join((*GRAPH_SUFFIXES, *ARCHIVE_SUFFIXES))
        raise DataError(f"{path} has an unknown suffix, expected one of {expected}.")
    layout = Layout(triples=(path,), **{role: (table,) for role, table in tables.items()})
    return _read(layout, split, name, columns)


def _read_folder(
    folder: Path, tables: dict[str, Path], split: Split, name: str, columns: Columns | None
) -> KnowledgeGraph:
    """Read a folder of tables, or one of numbers as OpenKE and OGB write them."""
    read = next((each.read for each in (openke, ogb) if each.is_folder(folder)), None)
    if read is None:
        return _read(find_layout(folder, tables), split, name, columns)
    if columns is not None:
        raise DataError(
            f"{folder} is a folder of OpenKE or OGB, whose files have their columns by definition. Leave out --columns."
        )
    statements, *indices = read(folder)
    kinds = {"entity": "entities", "relation": "relations"}
    entities, relations = (
        read_index(kind, [tables[role]]) if role in tables else index
        for (kind, role), index in zip(kinds.items(), indices, strict=True)
    )
    return assemble(statements, entities, relations, split, name)


def _name_of(path: Path) -> str:
    """The file's name without its suffix, in characters that every file system and JSON can represent."""
    name = path.resolve().name
    suffixes = (suffix for suffix in (*ARCHIVE_SUFFIXES, *GRAPH_SUFFIXES) if name.lower().endswith(suffix))
    longest = max(suffixes, key=len, default="")
    return name[: len(name) - len(longest)].encode(errors="replace").decode() or "graph"


def _read_archive(
    path: Path, tables: dict[str, Path], split: Split, name: str, columns: Columns | None
) -> KnowledgeGraph:
    with tempfile.TemporaryDirectory(prefix="cascader-") as folder:
        try:
            unpack(path, Path(folder))
            return _read_folder(_inner(Path(folder)), tables, split, name, columns)
        except DataError as error:  # the caller knows the archive, not the temporary folder
            raise DataError(str(error).replace(folder, str(path))) from error


def _inner(folder: Path) -> Path:
    """The innermost of the folders that an archive wraps around its files."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return _inner(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def _read(layout: Layout, split: Split, name: str, columns: Columns | None) -> KnowledgeGraph:
    entities = read_index("entity", layout.entities, layout.entity_names, layout.entity_descriptions)
    relations = read_index("relation", layout.relations, layout.relation_names)
    statements = {
        role: joined_statements([read_statements(path, entities.texts, relations.texts, columns) for path in paths])
        for role in ("train", "valid", "test", "triples")
        if (paths := getattr(layout, role))
    }
    return assemble(statements, entities, relations, split, name)


def read_index(
    kind: str, lists: Sequence[Path], names: Sequence[Path] = (), descriptions: Sequence[Path] = ()
) -> Index:
    """The ids of tables that list them, open to any id if there are none, and the texts of all tables."""
    texts = Texts()
    tables = [_text_table(path) for path in lists]
    texts.spaces = shared_spaces(table for table in tables if table is not None)
    read = [_add_texts(path, table, texts) for path, table in zip(lists, tables, strict=True)]
    ids = [id_ for found, _ in read for id_ in found]
    headers = [(found[0], where) for found, where in read if where is not None]
    for path in descriptions:
        _add_texts(path, _text_table(path), texts, ("id", "description"))
    for path in names:
        _add_texts(path, _text_table(path), texts)
    _check_once(kind, ids, lists)
    return Index(kind, texts, ids, table=", ".join(map(str, lists)) or None, headers=headers)


def _text_table(path: Path) -> Table | None:
    return None if path.suffix.lower() in RDF_SUFFIXES else read_table(path, is_text_header)


def _add_texts(
    path: Path, table: Table | None, texts: Texts, order: Sequence[str] = TEXT_ORDER
) -> tuple[list[str], str | None]:
    """Add what a table or an RDF file says of its ids; return these, and where the first is if it may be a header."""
    if table is not None:
        return texts.add_table(table, order), possible_header(table)
    read_rdf(path, texts)
    return list(dict.fromkeys([*texts.names.ids(), *texts.descriptions.ids()])), None


def _check_once(kind: str, ids: Sequence[str], lists: Sequence[Path]) -> None:
    twice = next((id_ for id_, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise DataError(
            f"{kind} id {twice!r} is in more than one of {', '.join(map(str, lists))}. Ids must be unique: rename one."
        )


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
        "kgx": _write_kgx,
        "neo4j": _write_neo4j,
        "openke": openke.write,
        "ogb": ogb.write,
    }
    if format not in write:
        raise DataError(f"there is no format {format!r}. Choose one of: {', '.join(FORMATS)}.")
    with atomic_folder(Path(folder)) as temporary:
        write[format](kg, temporary)
    return Path(folder)


def _links(kg: KnowledgeGraph, split: SplitName) -> list[tuple[str, str, str]]:
    return list(zip(*(column.values() for column in _columns(kg, split)), strict=True))


def _columns(kg: KnowledgeGraph, split: SplitName) -> list[CodedTexts]:
    """Heads, relations and tails by id; each id is held once."""
    entities = [entity.id for entity in kg.entities]
    ids = (entities, [relation.id for relation in kg.relations], entities)
    return [CodedTexts(texts, codes) for texts, codes in zip(ids, kg.split(split).T, strict=True)]


def _write_tables(kg: KnowledgeGraph, write: Callable[[str, Sequence[str], Sequence[Sequence[str]]], None]) -> None:
    for split in SPLITS:
        if len(kg.split(split)):
            write(split, _TRIPLE, _links(kg, split))
    write("entities", _ENTITY, kg.entities)
    write("relations", _RELATION, kg.relations)


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, [header, *rows], "," if path.suffix == ".csv" else "\t")


def _write_tsv(kg: KnowledgeGraph, folder: Path) -> None:
    _write_tables(kg, lambda name, header, rows: _write_table(folder / f"{name}.tsv", header, rows))


def _write_csv(kg: KnowledgeGraph, folder: Path) -> None:
    _write_tables(kg, lambda name, header, rows: _write_table(folder / f"{name}.csv", header, rows))


def _with_splits(kg: KnowledgeGraph) -> list[tuple[str, str, str, str]]:
    return [(*link, split) for split in SPLITS for link in _links(kg, split)]


def _write_kgx(kg: KnowledgeGraph, folder: Path) -> None:
    """One file of nodes and one of edges; beside them the names of relations, which KGX keeps elsewhere."""
    _write_table(folder / "nodes.tsv", ("id", "name", "description", "category"), kg.entities)
    _write_table(folder / "edges.tsv", ("subject", "predicate", "object", "split"), _with_splits(kg))
    _write_table(folder / "relations.tsv", _RELATION, kg.relations)


def _write_neo4j(kg: KnowledgeGraph, folder: Path) -> None:
    """The files of `neo4j-admin database import`; beside them the names of relations, which Neo4j does not have."""
    _write_table(folder / "nodes.csv", ("id:ID", "name", "description", ":LABEL"), kg.entities)
    _write_table(folder / "relationships.csv", (":START_ID", ":TYPE", ":END_ID", "split"), _with_splits(kg))
    _write_table(folder / "relations.csv", _RELATION, kg.relations)


def _write_parquet(kg: KnowledgeGraph, folder: Path) -> None:
    for split in SPLITS:
        if len(kg.split(split)):
            write_parquet(folder / f"{split}.parquet", dict(zip(_TRIPLE, _columns(kg, split), strict=True)))
    for name, header, things in (("entities", _ENTITY, kg.entities), ("relations", _RELATION, kg.relations)):
        columns: list[list[str]] = [[thing[place] for thing in things] for place in range(len(header))]
        write_parquet(folder / f"{name}.parquet", dict(zip(header, columns, strict=True)))


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
