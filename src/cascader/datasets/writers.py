"""Save a graph as a folder that `load_graph` reads back unchanged.

An empty split has no file; to keep it empty, load with `Split(valid=0, test=0)`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from cascader.datasets import rdf
from cascader.datasets.tables import write_rows
from cascader.errors import DataError
from cascader.graph import SPLITS, KnowledgeGraph, SplitName
from cascader.storage import atomic_folder, write_parquet

Format = Literal["tsv", "csv", "parquet", "ntriples", "turtle"]
FORMATS: tuple[Format, ...] = get_args(Format)

_TRIPLE = ("head", "relation", "tail")
_ENTITY = ("id", "name", "description", "type")
_RELATION = ("id", "name")


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
