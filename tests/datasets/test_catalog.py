"""The real benchmark files, and a catalog that holds what it must."""

import json
import re
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cascader.datasets import CATALOG, Counts, Split, load_graph
from cascader.errors import DataError
from cascader.graph import SPLITS
from tests.conftest import MIRROR

#: Triples of each split of a benchmark that only its texts are read from.
_SMALL = 100

BENCHMARKS = [name for name, dataset in CATALOG.items() if dataset.sources]

#: The paper's Table 1.
TABLE_1 = {
    "codex-s": (2_034, 42, 32_888, 1_827, 1_828),
    "repodb": (2_748, 1, 5_342, 667, 668),
    "fb15k-237": (14_541, 237, 272_115, 17_535, 20_466),
    "codex-m": (17_050, 51, 185_584, 10_310, 10_311),
    "wn18rr": (40_943, 11, 86_835, 3_034, 3_134),
}


@pytest.fixture(scope="module")
def benchmark():
    """Loads a benchmark from its real files, once for all tests of this module."""
    if not MIRROR or not Path(MIRROR).is_dir():
        pytest.skip("CASCADER_MIRROR names no folder with the benchmark files")

    @cache
    def load(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CASCADER_MIRROR", str(Path(MIRROR).resolve()))
            patch.setattr("urllib.request.urlopen", _no_network)
            return load_graph(name)

    return load


@pytest.fixture
def small_codex_m(mirror, tmp_path, monkeypatch):
    """CoDEx-M with the first triples of its real files, in a mirror of its own: its texts come as they do for all."""
    for split in SPLITS:
        first = (mirror / f"codex-m-{split}.txt").read_text().splitlines()[:_SMALL]
        (tmp_path / f"codex-m-{split}.txt").write_text("\n".join(first))
    (tmp_path / "codex-relations-en.json").symlink_to((mirror / "codex-relations-en.json").resolve())
    monkeypatch.setenv("CASCADER_MIRROR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", _no_network)
    unchecked = tuple(replace(source, sha256=None, size=None) for source in CATALOG["codex-m"].sources)
    return replace(CATALOG["codex-m"], sources=unchecked, counts=None)


def test_every_benchmark_of_the_paper_is_there_with_its_home_sum_and_license():
    assert set(BENCHMARKS) == set(TABLE_1)
    for name in BENCHMARKS:
        assert CATALOG[name].license
        for source in CATALOG[name].sources:
            assert source.home.startswith("https://")
            assert re.fullmatch("[0-9a-f]{64}", source.sha256)
            assert source.size > 0


def test_an_unknown_name_lists_the_known_ones():
    message = "no file or folder freebase, and no graph of that name: the catalog has wordnet, repodb"
    with pytest.raises(DataError, match=message):
        load_graph("freebase")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_counts_are_those_of_table_1(benchmark, name):
    kg = benchmark(name)
    assert Counts.of(kg) == TABLE_1[name]
    assert kg.name == name


def test_a_path_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repodb").mkdir()
    (tmp_path / "repodb" / "triples.tsv").write_text("a\tr\tb\n")
    assert len(load_graph("repodb").entities) == 2


def test_a_catalog_graph_can_be_renamed_but_not_split_anew(mirror):
    assert load_graph("repodb", name="drugs").name == "drugs"
    with pytest.raises(DataError, match="repodb is a graph of the catalog, with its own texts and splits"):
        load_graph("repodb", split=Split(seed=1))


class TestTraps:
    def test_repodb_placeholders_are_no_descriptions(self, benchmark):
        kg = benchmark("repodb")
        assert sum(not entity.description for entity in kg.entities) == 369
        assert {entity.type for entity in kg.entities} == {"drug", "disease"}
        assert kg.entities[kg.entity_index("Cetuximab")].id == "DB00002"

    def test_wn18rr_relations_are_named_by_their_own_ids(self, benchmark):
        kg = benchmark("wn18rr")
        assert kg.relations[0].name == "hypernym"
        assert "member of domain usage" in {relation.name for relation in kg.relations}
        assert not any("/" in relation.name for relation in kg.relations)

    def test_wn18rr_texts_belong_to_their_ids(self, benchmark):
        kg = benchmark("wn18rr")
        land_reform = kg.entities[kg.entity_index("00260881")]
        assert land_reform.name == "land reform"
        assert land_reform.description.startswith("a redistribution of agricultural land")

    def test_codex_s_texts_are_short_description_and_extract(self, benchmark):
        kg = benchmark("codex-s")
        euler = kg.entities[kg.entity_index("leonhard euler")]
        assert euler.description.startswith("Swiss mathematician. Leonhard Euler (")
        assert '"Read Euler, read Euler, he is the master of us all."' in euler.description
        assert euler.type == "human"

    def test_fb15k_237_texts_are_split_at_the_dashes(self, benchmark):
        kg = benchmark("fb15k-237")
        irons = kg.entities[kg.entity_index("/m/016ywr")]
        assert irons.name == "Jeremy Irons"
        assert irons.description == "English actor. Jeremy John Irons is an English actor."  # the first is Wikidata's
        assert all(relation.name != relation.id for relation in kg.relations)

    def test_codex_m_goes_on_without_its_texts_and_says_so(self, small_codex_m, caplog):
        kg = small_codex_m.load()
        assert kg.relations[0].name == "cast member"
        assert kg.entities[0].name == kg.entities[0].id
        assert "codex-m: continuing without some of its texts. cannot download codex-entities-en.json" in caplog.text

    def test_codex_m_reads_its_texts_where_they_are(self, small_codex_m, tmp_path):
        ids = {entity.id for entity in small_codex_m.load().entities}
        texts = {id_: {"label": f"name of {id_}", "description": "short"} for id_ in ids}
        (tmp_path / "codex-entities-en.json").write_text(json.dumps(texts))
        with zipfile.ZipFile(tmp_path / "codex-extracts-en.zip", "w") as archive:
            archive.writestr("extracts/Q1041.txt", "a long article")
        kg = small_codex_m.load()
        entity = kg.entities[kg.entity_index("Q1041")]
        assert (entity.name, entity.description) == ("name of Q1041", "short. a long article")

    @pytest.mark.parametrize("content", ["{}", "<html>log in first</html>", '{"Q1041": {"label": 7}}'])
    def test_codex_m_goes_on_without_texts_that_are_something_else(self, small_codex_m, tmp_path, caplog, content):
        (tmp_path / "codex-entities-en.json").write_text(content)
        (tmp_path / "codex-extracts-en.zip").write_text(content)
        assert small_codex_m.load().entities[0].description == ""
        assert "continuing without some of its texts" in caplog.text

    def test_codex_m_takes_texts_of_other_graphs_for_missing_ones_and_says_so(
        self, small_codex_m, mirror, tmp_path, caplog
    ):
        for source in CATALOG["codex-m"].stand_ins:
            (tmp_path / source.file).symlink_to((mirror / source.file).resolve())
        kg = small_codex_m.load()
        senegal, nicholson = (kg.entities[kg.entity_index(id_)] for id_ in ("Q1041", "Q39792"))
        assert senegal.name == "Senegal"
        assert senegal.description.startswith("legal state, administrative territorial entity")
        assert (nicholson.name, nicholson.type) == ("Jack Nicholson", "human")
        unnamed = [entity for entity in kg.entities if entity.name == entity.id]
        assert unnamed
        assert all(entity.description for entity in unnamed)
        assert "codex-m: partial texts stand in for its own" in caplog.text


def _no_network(*args, **options):
    raise ConnectionRefusedError("no network in tests")
