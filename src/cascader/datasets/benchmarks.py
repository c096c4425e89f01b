"""Read the files of each benchmark, with their pitfalls."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

from cascader.datasets.archives import read_members
from cascader.datasets.tables import parse_table
from cascader.datasets.triples import statements_of
from cascader.errors import DataError
from cascader.graph import SPLITS, Entity, KnowledgeGraph, Relation, Triples
from cascader.graph.arrays import frozen_triples
from cascader.storage import read_json

#: Paths by the name of their source; None for an optional file that is not available.
Files = Mapping[str, Path | None]
Row = dict[str, str]


def read_repodb(files: Files) -> KnowledgeGraph:
    """Drugs and the diseases they treat; the placeholder "unknown disease" is not used as a description."""

    def entity(id_: str, row: Row) -> Entity:
        description = "" if row["description"].startswith("unknown ") else row["description"]
        return Entity(id_, row["name"], description, row["ent_type"])

    return _read_numbered("repodb", _required(files, "cascader-repodb.zip"), entity, lambda id_, row: row["name"])


def read_codex_s(files: Files) -> KnowledgeGraph:
    """Wikidata, with short descriptions and the beginnings of Wikipedia articles."""

    def entity(id_: str, row: Row) -> Entity:
        return Entity(id_, row["name"], _joined(row["description"], row["extract"]), row["ent_type"])

    return _read_numbered("codex-s", _required(files, "cascader-codex-s.zip"), entity, lambda id_, row: row["name"])


def read_wn18rr(files: Files) -> KnowledgeGraph:
    """WordNet; relations are named after their ids, because the names in the release are those of FB15k-237."""

    def entity(id_: str, row: Row) -> Entity:
        if row["entity_id"].zfill(8) != id_:  # the text file drops leading zeros
            raise DataError(f"wn18rr: found the text of {row['entity_id']}, expected {id_}.")
        return Entity(id_, row["name"], row["description"])

    archive = _required(files, "cascader-wn18rr.zip")
    return _read_numbered("wn18rr", archive, entity, lambda id_, row: id_.strip("_").replace("_", " "))


def _read_numbered(
    name: str, archive: Path, entity: Callable[[str, Row], Entity], relation_name: Callable[[str, Row], str]
) -> KnowledgeGraph:
    """Read an archive of the authors: ids and triples by number, and texts in the order of those numbers."""
    names = [
        "entity_ids.del",
        "relation_ids.del",
        "entity_text.tsv",
        "relation_text.tsv",
        *(f"{s}.del" for s in SPLITS),
    ]
    members = read_members(archive, [f"{name}/{member}" for member in names])

    def rows(member: str) -> list[Row]:
        content = io.BytesIO(members[f"{name}/{member}"])
        table = parse_table(content, f"{archive.name}/{member}", lambda names: "name" in names)
        columns = table.header or tuple(str(column) for column in range(table.width))
        return [dict(zip(columns, (text.strip() for text in row), strict=True)) for row in table.rows]

    entity_texts = rows("entity_text.tsv")
    relation_texts = rows("relation_text.tsv")
    entities = [entity(row["1"], text) for row, text in zip(rows("entity_ids.del"), entity_texts, strict=True)]
    # Not strict: the table of relation texts in WN18RR is that of another benchmark.
    relations = [
        Relation(row["1"], relation_name(row["1"], text))
        for row, text in zip(rows("relation_ids.del"), relation_texts, strict=False)
    ]
    splits = [frozen_triples([[int(v) for v in row.values()] for row in rows(f"{split}.del")]) for split in SPLITS]
    return KnowledgeGraph(name, tuple(entities), tuple(relations), *splits)


def read_fb15k_237(files: Files) -> KnowledgeGraph:
    """Freebase; an entity's text is "name -- first sentence", or the name alone."""
    archive = _required(files, "conve-FB15k-237.tar.gz")
    members = read_members(archive, [f"{split}.txt" for split in SPLITS])
    texts = _two_columns(_required(files, "star-fb15k-237-entity2text.txt"))
    relation_names = _two_columns(_required(files, "star-fb15k-237-relation2text.txt"))

    def entity(id_: str) -> Entity:
        name, _, description = texts.get(id_, id_).partition(" -- ")
        return Entity(id_, name.strip(), description.strip())

    return _from_names(
        "fb15k-237",
        {split: members[f"{split}.txt"] for split in SPLITS},
        entity,
        lambda id_: Relation(id_, relation_names.get(id_, id_)),
    )


def read_codex_m(files: Files) -> KnowledgeGraph:
    """Wikidata; entity texts are optional, since they must be downloaded."""
    labels = read_json(_required(files, "codex-relations-en.json"))
    entity = _codex_entities(files)
    return _from_names(
        "codex-m",
        {split: _required(files, f"codex-m-{split}.txt").read_bytes() for split in SPLITS},
        entity,
        lambda id_: Relation(id_, labels[id_]["label"]),
    )


def _codex_entities(files: Files) -> Callable[[str], Entity]:
    path, extracts = files.get("codex-entities-en.json"), files.get("codex-extracts-en.zip")
    if path is None:
        return lambda id_: Entity(id_, id_)
    texts = read_json(path)
    articles = {} if extracts is None else _articles(extracts)

    def entity(id_: str) -> Entity:
        text = texts.get(id_)
        if not isinstance(text, dict) or not isinstance(text.get("label"), str):
            raise DataError(
                f"{path} has no label for {id_}: it is not the file of CoDEx. Delete it to download it again."
            )
        return Entity(id_, text["label"], _joined(str(text.get("description") or ""), articles.get(id_, "")))

    return entity


def _articles(archive: Path) -> dict[str, str]:
    """The text files of the archive by entity id, which is their name."""
    members = read_members(archive)
    return {
        Path(name).stem: content.decode(errors="replace").strip()
        for name, content in members.items()
        if name.endswith(".txt")
    }


def _from_names(
    name: str,
    contents: Mapping[str, bytes],
    entity: Callable[[str], Entity],
    relation: Callable[[str], Relation],
) -> KnowledgeGraph:
    """Build a graph from triples of ids, indexed in order of first appearance in train, valid and test."""
    train, valid, test = (
        statements_of(parse_table(io.BytesIO(content), f"{name} {split}", _no_header)).triples
        for split, content in contents.items()
    )
    plain = KnowledgeGraph.from_triples(train, valid, test)
    splits: list[Triples] = [plain.split(split) for split in SPLITS]
    return KnowledgeGraph(
        name,
        tuple(entity(e.id) for e in plain.entities),
        tuple(relation(r.id) for r in plain.relations),
        *splits,
    )


def _no_header(names: tuple[str, ...]) -> bool:
    return False


def _two_columns(path: Path) -> dict[str, str]:
    with path.open("rb") as stream:
        table = parse_table(stream, path.name, _no_header)
    return {row[0].strip(): row[1].strip() for row in table.rows}


def _joined(short: str, long: str) -> str:
    return f"{short}. {long}" if short and long else short or long


def _required(files: Files, name: str) -> Path:
    path = files[name]
    if path is None:
        raise DataError(f"{name} is missing.")
    return path
