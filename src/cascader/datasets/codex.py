"""Read CoDEx-M: its texts must be downloaded, and where they cannot be, others stand in for a part of them."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cascader.datasets.archives import read_members
from cascader.datasets.benchmarks import (
    WIKIDATA_FILE,
    Files,
    from_names,
    joined,
    read_codex_s,
    required,
    wikidata_texts,
)
from cascader.errors import DataError
from cascader.graph import SPLITS, Entity, KnowledgeGraph, Relation
from cascader.storage import read_json

logger = logging.getLogger(__name__)

#: The files that stand in for texts: the types of all entities, the names of those types, and texts of other graphs.
TYPES_FILE, TYPE_NAMES_FILE, CODEX_S_FILE = "codex-entity2types.json", "codex-types-en.json", "cascader-codex-s.zip"


def read_codex_m(files: Files) -> KnowledgeGraph:
    """Wikidata; entities have their own texts, or partial ones, or none, whatever is at hand."""
    labels = read_json(required(files, "codex-relations-en.json"))
    own = files.get("codex-entities-en.json")
    kg = from_names(
        "codex-m",
        {split: required(files, f"codex-m-{split}.txt").read_bytes() for split in SPLITS},
        _partial_texts(files) if own is None else _own_texts(own, files.get("codex-extracts-en.zip")),
        lambda id_: Relation(id_, labels[id_]["label"]),
    )
    if own is None:
        _say_what_there_is(kg)
    return kg


def _own_texts(path: Path, extracts: Path | None) -> Callable[[str], Entity]:
    texts = read_json(path)
    articles = {} if extracts is None else _articles(extracts)

    def entity(id_: str) -> Entity:
        text = texts.get(id_)
        if not isinstance(text, dict) or not isinstance(text.get("label"), str):
            raise DataError(
                f"{path} has no label for {id_}: it is not the file of CoDEx. Delete it to download it again."
            )
        return Entity(id_, text["label"], joined(str(text.get("description") or ""), articles.get(id_, "")))

    return entity


def _articles(archive: Path) -> dict[str, str]:
    """The text files of the archive by entity id, which is their name."""
    members = read_members(archive)
    return {
        Path(name).stem: content.decode(errors="replace").strip()
        for name, content in members.items()
        if name.endswith(".txt")
    }


def _partial_texts(files: Files) -> Callable[[str], Entity]:
    """The texts that other graphs have of an entity, if any, and the names of its types."""
    named = _named_elsewhere(files)
    types = _types(files)

    def entity(id_: str) -> Entity:
        found = named.get(id_, Entity(id_, id_))
        kinds = types.get(id_, [])
        description = joined(", ".join(kinds), found.description)
        return Entity(id_, found.name, description, kinds[0] if kinds else "")

    return entity


def _named_elsewhere(files: Files) -> dict[str, Entity]:
    """Entities with a name, by their id in Wikidata; CoDEx-S has longer texts than FB15k-237."""
    of_freebase = wikidata_texts(files.get(WIKIDATA_FILE)).values()
    named = {text.wikidata_id: Entity(text.wikidata_id, text.label, text.description) for text in of_freebase}
    if files.get(CODEX_S_FILE) is not None:
        named |= {entity.id: entity for entity in read_codex_s(files).entities}
    return {id_: entity for id_, entity in named.items() if entity.name}


def _types(files: Files) -> Mapping[str, list[str]]:
    """The names of each entity's types."""
    of_entities, of_types = files.get(TYPES_FILE), files.get(TYPE_NAMES_FILE)
    if of_entities is None or of_types is None:
        return {}
    names: dict[str, Any] = read_json(of_types)
    return {
        id_: [str(names[kind]["label"]) for kind in kinds if names.get(kind, {}).get("label")]
        for id_, kinds in read_json(of_entities).items()
    }


def _say_what_there_is(kg: KnowledgeGraph) -> None:
    named = sum(entity.name != entity.id for entity in kg.entities)
    described = sum(bool(entity.description) for entity in kg.entities)
    if named or described:
        logger.warning(
            "codex-m: partial texts stand in for its own: %s of %s entities have a name, known from CoDEx-S and "
            "FB15k-237, and %s have a description or types.",
            f"{named:,}",
            f"{len(kg.entities):,}",
            f"{described:,}",
        )
