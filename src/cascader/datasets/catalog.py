"""The graphs known by name: sources, checksums, licenses, and the counts that they must have."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cascader.datasets import benchmarks, codex
from cascader.datasets.download import Source, fetch
from cascader.errors import DataError, StorageError
from cascader.graph import KnowledgeGraph

logger = logging.getLogger(__name__)

_AUTHORS = "https://raw.githubusercontent.com/tsafavi/cascader/HEAD/data"
_CODEX = "https://raw.githubusercontent.com/tsafavi/codex/HEAD/data"
_CONVE = "https://raw.githubusercontent.com/TimDettmers/ConvE/HEAD"
_VILLMOW = "https://raw.githubusercontent.com/villmow/datasets_knowledge_embedding/HEAD/FB15k-237"
_STAR = "https://raw.githubusercontent.com/wangbo9719/StAR_KGC/HEAD/StAR/data/FB15k-237"


class Counts(NamedTuple):
    """The size of a graph."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int

    @classmethod
    def of(cls, kg: KnowledgeGraph) -> "Counts":
        """The counts of a graph."""
        return cls(len(kg.entities), len(kg.relations), len(kg.train), len(kg.valid), len(kg.test))


@dataclass(frozen=True)
class Dataset:
    """A graph of the catalog: what it is, and how to get and read it."""

    name: str
    title: str
    license: str
    counts: Counts | None  # None if it depends on what it is built from
    read: Callable[[benchmarks.Files], KnowledgeGraph]
    sources: tuple[Source, ...] = ()
    optional_sources: tuple[Source, ...] = ()  # texts, which the graph can do without
    stand_ins: tuple[Source, ...] = ()  # other texts, for when those cannot be had
    is_installed: Callable[[], bool] = lambda: True  # whether what it is built from, other than sources, is there

    def load(self) -> KnowledgeGraph:
        """Download and check the files that are not at hand, and read the graph."""
        files: dict[str, Path | None] = {source.file: fetch(source) for source in self.sources}
        files |= self._fetched(self.optional_sources)
        if None in files.values():
            files |= self._fetched(self.stand_ins)
        kg = self._read(files)
        self._check_counts(Counts.of(kg))
        return kg

    def _fetched(self, sources: tuple[Source, ...]) -> dict[str, Path | None]:
        """Fetch what can be had, and say what cannot."""
        files: dict[str, Path | None] = {}
        for source in sources:
            try:
                files[source.file] = fetch(source)
            except (DataError, StorageError) as error:
                files[source.file] = None
                self._warn_no_texts(error)
        return files

    def _read(self, files: Mapping[str, Path | None]) -> KnowledgeGraph:
        """Read the graph, with other texts if its own turn out to be unusable."""
        try:
            return self.read(files)
        except DataError as error:
            own = [source.file for source in self.optional_sources if files[source.file] is not None]
            if not own:
                raise
            self._warn_no_texts(error)
        return self.read({**files, **dict.fromkeys(own), **self._fetched(self.stand_ins)})

    def _warn_no_texts(self, error: Exception) -> None:
        logger.warning("%s: continuing without some of its texts. %s", self.name, error)

    def _check_counts(self, found: Counts) -> None:
        if self.counts not in (None, found):
            raise DataError(
                f"{self.name} has {found}, expected {self.counts}. Please report this: its checksums were right."
            )


_CODEX_S = Source(
    codex.CODEX_S_FILE,
    f"{_AUTHORS}/codex-s.zip",
    "a694dce18671c0361b06d9c661d5aff55d865528fad2b7fa7e542ce38c340103",
    1_489_394,
)
_WIKIDATA = Source(
    benchmarks.WIKIDATA_FILE,
    f"{_VILLMOW}/entity2wikidata.json",
    "80e74bb002fb9ca0ecd3d63879a3a51121db855d312a101917a1ffb6aed2fea9",
    3_927_931,
)

#: Every graph that can be loaded by name.
CATALOG = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "wordnet",
            "WordNet places: what is part of what; needs no download",
            "WordNet license: free to use, with its notice",
            None,
            lambda files: benchmarks.read_wordnet(),
            is_installed=benchmarks.has_wordnet,
        ),
        Dataset(
            "repodb",
            "RepoDB: drugs and the diseases they treat",
            "its source has no license file; drug data from DrugBank: check the terms before you share it",
            Counts(2_748, 1, 5_342, 667, 668),
            benchmarks.read_repodb,
            (
                Source(
                    "cascader-repodb.zip",
                    f"{_AUTHORS}/repodb.zip",
                    "8fbc92656d3f104b473b1d526c3e390796c281391e16ff3747bc3f4ca64c034a",
                    3_345_435,
                ),
            ),
        ),
        Dataset(
            "codex-s",
            "CoDEx-S: Wikidata, small",
            "MIT (CoDEx); Wikidata CC0, Wikipedia extracts CC BY-SA",
            Counts(2_034, 42, 32_888, 1_827, 1_828),
            benchmarks.read_codex_s,
            (_CODEX_S,),
        ),
        Dataset(
            "codex-m",
            "CoDEx-M: Wikidata, medium",
            "MIT (CoDEx); Wikidata CC0, Wikipedia extracts CC BY-SA",
            Counts(17_050, 51, 185_584, 10_310, 10_311),
            codex.read_codex_m,
            (
                Source(
                    "codex-m-train.txt",
                    f"{_CODEX}/triples/codex-m/train.txt",
                    "d99c3437ab51690391a26d96976adf6e5494dba7ef6902e77000551bfa566556",
                    3_660_213,
                ),
                Source(
                    "codex-m-valid.txt",
                    f"{_CODEX}/triples/codex-m/valid.txt",
                    "11c323096367354940846b9ed940c5dabddc1d20a70474222babe7e7fd28b28d",
                    203_470,
                ),
                Source(
                    "codex-m-test.txt",
                    f"{_CODEX}/triples/codex-m/test.txt",
                    "0575ce05e4ce915e395bb4f708e8df9547989dd4c8c71407cbfd78c19daffcf7",
                    203_693,
                ),
                Source(
                    "codex-relations-en.json",
                    f"{_CODEX}/relations/en/relations.json",
                    "2b467fab26430a0500e5fe82cdb9b3c4fbcfda01827ff3bfa833dc5470ad92f7",
                    10_698,
                ),
            ),
            (
                Source("codex-entities-en.json", f"{_CODEX}/entities/en/entities.json"),
                Source("codex-extracts-en.zip", f"{_CODEX}/entities/en/extracts.zip"),
            ),
            (
                Source(
                    codex.TYPES_FILE,
                    f"{_CODEX}/types/entity2types.json",
                    "9c3797961498fc312a6d62c798b250c3ad501578a8ac07c0829a2862c627a878",
                    1_749_871,
                ),
                Source(
                    codex.TYPE_NAMES_FILE,
                    f"{_CODEX}/types/en/types.json",
                    "2934c3bac72fd9e7dc8a6452a84845e8fa232264aaa505c4b81cad2b0e7c5626",
                    530_344,
                ),
                _WIKIDATA,
                _CODEX_S,
            ),
        ),
        Dataset(
            "fb15k-237",
            "FB15k-237: Freebase, people, films and places",
            "Freebase CC BY; the sources of triples and texts state no license for them",
            Counts(14_541, 237, 272_115, 17_535, 20_466),
            benchmarks.read_fb15k_237,
            (
                Source(
                    "conve-FB15k-237.tar.gz",
                    f"{_CONVE}/FB15k-237.tar.gz",
                    "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
                    3_678_603,
                ),
                Source(
                    "star-fb15k-237-entity2text.txt",
                    f"{_STAR}/fb-entity2text-new.txt",
                    "d982bb5b950820dabc00aee9870cae2035d48c169d10c9f2c225579e19528aa2",
                    2_393_081,
                ),
                Source(
                    "star-fb15k-237-relation2text.txt",
                    f"{_STAR}/relation2text.txt",
                    "4bf7cb6ea0ac09b17ad210889f723be5e079669f6ae5d507787e1320bbaa0f72",
                    29_130,
                ),
            ),
            (_WIKIDATA,),
        ),
        Dataset(
            "wn18rr",
            "WN18RR: WordNet, words and their relations",
            "WordNet license: free to use, with its notice",
            Counts(40_943, 11, 86_835, 3_034, 3_134),
            benchmarks.read_wn18rr,
            (
                Source(
                    "cascader-wn18rr.zip",
                    f"{_AUTHORS}/wn18rr.zip",
                    "26b70ecf2c9d5989392cf9ede1f80c9a19d9049077c9ff49d04ed530835b4a57",
                    3_877_629,
                ),
            ),
        ),
    )
}
