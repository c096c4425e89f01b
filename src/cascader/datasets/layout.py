"""Which file of a folder is what: told by its name, as KG-BERT, KGX and others choose them, or by its header."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cascader.datasets.rdf import RDF_SUFFIXES
from cascader.datasets.tables import TABLE_SUFFIXES
from cascader.errors import DataError

logger = logging.getLogger(__name__)

GRAPH_SUFFIXES = (*TABLE_SUFFIXES, *RDF_SUFFIXES)
#: The file names, without suffix, that say what a file of a folder contains.
_ROLES = {
    "train": ("train",),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
    "triples": ("triples", "edges", "graph", "kg", "facts", "relationships", "links", "edgelist", "edge_list"),
    "entities": ("entities", "entity", "nodes", "entity_ids", "entity_list"),
    "entity_names": ("entity2text", "entity_text", "entity2name", "entity_names", "entity2label", "entity_labels"),
    "entity_descriptions": (
        *("entity2textlong", "entity2text_long", "entity2description", "entity2descriptions", "entity2desc"),
        *("entity_descriptions", "entity_description", "entity2definition", "entity_definitions"),
    ),
    "relations": ("relations", "relation", "relation_ids", "relation_list"),
    "relation_names": ("relation2text", "relation_text", "relation2name", "relation_names", "relation2label"),
}
#: The ends of file names, after some name of the graph, as KGX and Neo4j's exports have them; there may be several.
_ENDINGS = {"triples": ("edges", "relationships", "rels"), "entities": ("nodes",)}
#: What a header of Neo4j has, in a file of any name.
_NEO4J_FIELDS = {"triples": ":START_ID", "entities": ":ID"}
_MAX_HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """The files of a graph: either `triples` or `train`, and whichever of the others exist."""

    train: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    triples: tuple[Path, ...] = ()
    entities: tuple[Path, ...] = ()
    entity_names: tuple[Path, ...] = ()
    entity_descriptions: tuple[Path, ...] = ()
    relations: tuple[Path, ...] = ()
    relation_names: tuple[Path, ...] = ()


def find_layout(folder: Path, given: Mapping[str, Path]) -> Layout:
    """Tell the files of a folder apart; a single file that nothing is known of is the triples.

    What is `given` takes the place of all that the folder has of its kind: entities or relations.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in GRAPH_SUFFIXES)
    roles = {path: _role(path) for path in files if not any(_is_same(path, table) for table in given.values())}
    found: dict[str, tuple[Path, ...]] = {}
    for path, role in roles.items():
        if role is not None and not _is_replaced(role, given):
            _check_only_one(folder, role, found, path)
            found[role] = (*found.get(role, ()), path)
    others = [path for path, role in roles.items() if role is None]
    if "train" not in found and "triples" not in found:
        found["triples"] = (_only(folder, others),)
    elif others:
        logger.warning("%s: ignored %s.", folder, ", ".join(path.name for path in others))
    _check_one_split(folder, found)
    return Layout(**found, **{role: (path,) for role, path in given.items()})


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _is_replaced(role: str, given: Mapping[str, Path]) -> bool:
    """Whether a table that was named says what a file of this role would."""
    kind = "entities" if role.startswith("entit") else "relations" if role.startswith("relation") else ""
    return kind in given


def _role(path: Path) -> str | None:
    stem = path.stem.lower()
    named = next((role for role, names in _ROLES.items() if stem in names), None)
    return named or _role_by_ending(stem) or _role_by_header(path)


def _role_by_ending(stem: str) -> str | None:
    def ends(ending: str) -> bool:
        return any(stem.endswith(f"{mark}{ending}") for mark in "_-.")

    return next((role for role, endings in _ENDINGS.items() if any(map(ends, endings))), None)


def _role_by_header(path: Path) -> str | None:
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return None
    with path.open("rb") as stream:
        header = stream.readline(_MAX_HEADER_BYTES).decode(errors="replace").upper()
    return next((role for role, field in _NEO4J_FIELDS.items() if field in header), None)


def _check_only_one(folder: Path, role: str, found: Mapping[str, tuple[Path, ...]], path: Path) -> None:
    """Refuse two files of which one seems to be a copy; several lists of nodes and edges are fine."""
    same = [other for other in found.get(role, ()) if _is_plain(other, role) and _is_plain(path, role)]
    if same:
        raise DataError(f"{folder} has both {same[0].name} and {path.name} for {role}. Keep one of them.")


def _is_plain(path: Path, role: str) -> bool:
    return path.stem.lower() in _ROLES[role]


def _check_one_split(folder: Path, found: Mapping[str, tuple[Path, ...]]) -> None:
    for role in ("train", "valid", "test"):
        if "triples" in found and role in found:
            raise DataError(
                f"{folder} has both {found['triples'][0].name} and {found[role][0].name}. Rename the first to train "
                "to keep your own split, or remove the second to have the first one split for you."
            )


def _only(folder: Path, files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    expected = f"Expected train, valid and test, or triples, with one of the suffixes {', '.join(GRAPH_SUFFIXES)}."
    if not files:
        raise DataError(f"{folder} has no file of triples. {expected}")
    raise DataError(f"{folder}: which of {', '.join(path.name for path in files)} contains the triples? {expected}")
