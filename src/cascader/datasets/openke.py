"""The folder of OpenKE: entities and relations by number, and triples in the order head, tail, relation."""

from collections.abc import Sequence
from pathlib import Path

from cascader.datasets.statements import Statements
from cascader.datasets.texts import Texts
from cascader.datasets.triples import Index
from cascader.errors import DataError
from cascader.graph import SPLITS, KnowledgeGraph
from cascader.storage import read_bytes
from cascader.wording import counted

_ENTITIES, _RELATIONS = "entity2id.txt", "relation2id.txt"
_TRIPLES = {split: f"{split}2id.txt" for split in SPLITS}
#: Texts beside the numbers, under the names that KG-BERT gives them; OpenKE itself knows none.
_NAMES, _DESCRIPTIONS, _TYPES = "entity2text.txt", "entity2textlong.txt", "entity2type.txt"
_RELATION_NAMES = "relation2text.txt"


def is_folder(folder: Path) -> bool:
    """Whether this is a folder of OpenKE."""
    return all((folder / file).is_file() for file in (_ENTITIES, _RELATIONS, _TRIPLES["train"]))


def read(folder: Path) -> tuple[dict[str, Statements], Index, Index]:
    """The triples of each split, and the ids and texts of entities and relations."""
    entities, relations = _read_ids(folder / _ENTITIES), _read_ids(folder / _RELATIONS)
    statements: dict[str, Statements] = {
        split: _read_triples(folder / file, entities, relations)
        for split, file in _TRIPLES.items()
        if (folder / file).is_file()
    }
    texts, relation_texts = Texts(), Texts()
    for texts_of, kind, file in (
        (texts, "names", _NAMES),
        (texts, "descriptions", _DESCRIPTIONS),
        (texts, "types", _TYPES),
        (relation_texts, "names", _RELATION_NAMES),
    ):
        for id_, text in _read_texts(folder / file):
            getattr(texts_of, kind).offer(id_, text)
    return (
        statements,
        Index("entity", texts, entities, str(folder / _ENTITIES)),
        Index("relation", relation_texts, relations, str(folder / _RELATIONS)),
    )


def _lines(path: Path) -> list[str]:
    try:
        return read_bytes(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1:,} is not UTF-8. Save the file as UTF-8.") from error


def _counted(path: Path) -> list[tuple[int, str]]:
    """The lines below the first, which says how many there are, with their numbers."""
    first, *others = _lines(path)
    found = [(number, line.rstrip("\r")) for number, line in enumerate(others, start=2) if line.strip()]
    if not first.strip().isdecimal() or int(first) != len(found):
        raise DataError(
            f"{path}:1: found {first.strip()[:40]!r} above {counted(len(found), 'line')}, expected their number, "
            "as OpenKE has it. Correct it, or restore the lines that are missing."
        )
    return found


def _read_ids(path: Path) -> list[str]:
    """The ids in the order of their numbers, which may stand in any order."""
    by_number: dict[int, str] = {}
    lines = _counted(path)
    for line_number, line in lines:
        id_, _, number = line.replace(" ", "\t").rpartition("\t")
        id_ = line[: len(id_)].strip()
        if not id_ or not number.isdecimal() or int(number) >= len(lines) or int(number) in by_number:
            raise DataError(
                f"{path}:{line_number}: found {line[:60]!r}, expected an id and its own number below {len(lines):,}."
            )
        by_number[int(number)] = id_
    return [by_number[number] for number in range(len(lines))]


def _read_triples(path: Path, entities: Sequence[str], relations: Sequence[str]) -> Statements:
    lines = _counted(path)
    triples = [_triple(f"{path}:{number}", line, entities, relations) for number, line in lines]
    return Statements.of(triples, lambda row: f"{path}:{lines[row][0]}")


def _triple(where: str, line: str, entities: Sequence[str], relations: Sequence[str]) -> tuple[str, str, str]:
    limits = len(entities), len(entities), len(relations)
    numbers = [int(field) for field in line.split() if field.isdecimal()]
    if len(numbers) != 3 or len(line.split()) != 3 or any(n >= limit for n, limit in zip(numbers, limits, strict=True)):
        raise DataError(
            f"{where}: found {line[:60]!r}, expected the numbers of head, tail and relation, in this order, with "
            f"{counted(len(entities), 'entity')} and {counted(len(relations), 'relation')}."
        )
    head, tail, relation = numbers
    return entities[head], relations[relation], entities[tail]


def _read_texts(path: Path) -> list[tuple[str, str]]:
    """Ids and their texts, separated by tabs; none if there is no such file."""
    rows = [line.rstrip("\r").partition("\t") for line in (_lines(path) if path.is_file() else ())]
    return [(id_.strip(), text.strip()) for id_, _, text in rows if id_.strip()]


def write(kg: KnowledgeGraph, folder: Path) -> None:
    """Write the numbers as OpenKE reads them, and the texts, each on one line, beside them."""
    _write(folder / _ENTITIES, [f"{id_}\t{number}" for number, id_ in enumerate(_ids(kg.entities))])
    _write(folder / _RELATIONS, [f"{id_}\t{number}" for number, id_ in enumerate(_ids(kg.relations))])
    for split, file in _TRIPLES.items():
        _write(folder / file, [f"{head} {tail} {relation}" for head, relation, tail in kg.split(split).tolist()])
    texts: dict[str, Sequence[tuple[str, str]]] = {
        _NAMES: [(entity.id, entity.name) for entity in kg.entities],
        _DESCRIPTIONS: [(entity.id, entity.description) for entity in kg.entities],
        _TYPES: [(entity.id, entity.type) for entity in kg.entities],
        _RELATION_NAMES: list(kg.relations),
    }
    for file, rows in texts.items():
        lines = [f"{id_}\t{' '.join(text.split())}\n" for id_, text in rows if text]
        (folder / file).write_text("".join(lines), encoding="utf-8", newline="\n")


def _ids(things: Sequence[tuple[str, ...]]) -> list[str]:
    ids = [thing[0] for thing in things]
    odd = next((id_ for id_ in ids if "\t" in id_ or id_ != " ".join(id_.splitlines()).strip()), None)
    if odd is not None:
        raise DataError(
            f"id {odd!r} has a tab or a line break, which OpenKE's files cannot hold. Choose another format."
        )
    return ids


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join([str(len(lines)), *lines]) + "\n", encoding="utf-8", newline="\n")
