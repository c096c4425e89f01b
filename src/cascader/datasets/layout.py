"""Which file of a folder holds what, by its name."""

import logging
from dataclasses import dataclass
from pathlib import Path

from cascader.datasets.rdf import RDF_SUFFIXES
from cascader.datasets.tables import TABLE_SUFFIXES
from cascader.errors import DataError

logger = logging.getLogger(__name__)

SUFFIXES = (*TABLE_SUFFIXES, *RDF_SUFFIXES)

_NAMES = {
    "train": ("train",),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
    "triples": ("triples", "edges", "graph", "kg", "facts"),
    "entities": ("entities", "entity", "nodes", "entity_text", "entity2text"),
    "relations": ("relations", "relation", "relation_text", "relation2text"),
}


@dataclass(frozen=True)
class Layout:
    """The files of a graph: either `triples` or `train`, the others where there are any."""

    train: Path | None = None
    valid: Path | None = None
    test: Path | None = None
    triples: Path | None = None
    entities: Path | None = None
    relations: Path | None = None


def find_layout(folder: Path) -> Layout:
    """Tell the files of a folder apart; a single table under any name is the triples."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)
    found: dict[str, Path] = {}
    unnamed: list[Path] = []
    for path in files:
        role = next((role for role, names in _NAMES.items() if _stem(path) in names), None)
        if role is None:
            unnamed.append(path)
        elif role in found:
            raise DataError(f"{folder} holds both {found[role].name} and {path.name} for {role}. Keep one of them.")
        else:
            found[role] = path
    if "train" not in found and "triples" not in found:
        found["triples"] = _only(folder, unnamed)
    elif unnamed:
        logger.warning("%s: passed over %s.", folder, ", ".join(path.name for path in unnamed))
    for role in ("train", "valid", "test"):
        if "triples" in found and role in found:
            raise DataError(
                f"{folder} holds both {found['triples'].name} and {found[role].name}. Rename the first to train to "
                "keep your own split, or remove the second to have the first split here."
            )
    return Layout(**found)


def _only(folder: Path, unnamed: list[Path]) -> Path:
    if len(unnamed) == 1:
        return unnamed[0]
    expected = f"Expected train, valid and test, or triples, with one of the suffixes {', '.join(SUFFIXES)}."
    if not unnamed:
        raise DataError(f"{folder} has no file of triples. {expected}")
    raise DataError(f"{folder}: which of {', '.join(path.name for path in unnamed)} holds the triples? {expected}")


def _stem(path: Path) -> str:
    return path.stem.lower()
