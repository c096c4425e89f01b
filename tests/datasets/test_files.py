"""Graphs in the files that people have, and back."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascader.datasets import FORMATS, Split, load_graph, save_graph
from cascader.errors import DataError, StorageError
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.storage import write_parquet
from tests.datasets.files import write


def texts(kg):
    return [tuple(entity) for entity in kg.entities]


def names(kg, split="train"):
    return [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.split(split).tolist()]


class TestFine:
    def test_a_single_file_of_names(self, tmp_path):
        write(tmp_path, g_tsv="a\tr\tb\nb\tr\tc\n")
        kg = load_graph(tmp_path / "g.tsv", split=Split(0, 0))
        assert kg.name == "g"
        assert names(kg) == [("a", "r", "b"), ("b", "r", "c")]

    def test_a_folder_with_three_splits_and_tables(self, tmp_path):
        write(
            tmp_path,
            train_tsv="a\tr\tb\n",
            valid_txt="b\tr\ta\n",
            test_csv="a,r,a\n",
            entities_tsv="id\tname\tdescription\ttype\nb\tBee\tan insect\tanimal\na\t\t\t\n",
            relations_tsv="r\tstings\n",
        )
        kg = load_graph(tmp_path)
        assert texts(kg) == [("b", "Bee", "an insect", "animal"), ("a", "a", "", "")]
        assert kg.relations == (Relation("r", "stings"),)
        assert [names(kg, split) for split in ("train", "valid", "test")] == [
            [("a", "r", "b")],
            [("b", "r", "a")],
            [("a", "r", "a")],
        ]

    def test_a_header_may_put_the_columns_in_any_order_among_others(self, tmp_path):
        write(tmp_path, g_csv="id,object,predicate,subject\n1,b,r,a\n")
        assert names(load_graph(tmp_path / "g.csv", split=Split(0, 0))) == [("a", "r", "b")]

    @pytest.mark.parametrize(
        "content", [b"a\tr\tb\r\nb\tr\tc\r\n", b"\xef\xbb\xbfa\tr\tb\nb\tr\tc\n", b"a\tr\tb\n\n\nb\tr\tc"]
    )
    def test_windows_line_ends_byte_order_marks_and_blank_lines(self, tmp_path, content):
        write(tmp_path, g_tsv=content)
        assert names(load_graph(tmp_path / "g.tsv", split=Split(0, 0))) == [("a", "r", "b"), ("b", "r", "c")]

    def test_quoted_fields_with_tabs_newlines_and_quotes(self, tmp_path):
        write(
            tmp_path,
            train_tsv="a\tr\tb\n",
            entities_tsv='id\tname\tdescription\na\tA\t"one\ttab, a ""quote""\nand a second line"\nb\tB\tplain\n',
        )
        assert load_graph(tmp_path).entities[0].description == 'one\ttab, a "quote"\nand a second line'

    def test_stray_quotes_far_apart_do_not_swallow_the_rows_between(self, tmp_path):
        rows = ['"Heroes\tr\tx', *(f"e{i}\tr\tx" for i in range(50)), 'disk 5"\tr\ty']
        write(tmp_path, g_tsv="\n".join(rows))
        assert len(load_graph(tmp_path / "g.tsv", split=Split(0, 0)).train) == 52

    @pytest.mark.parametrize("header", ["h\tr\tt", "from\tlabel\tto", "Head Entity\tRelationship\tTail Entity"])
    def test_headers_as_people_write_them(self, tmp_path, header):
        write(tmp_path, g_tsv=f"{header}\na\tr\tb\n")
        assert names(load_graph(tmp_path / "g.tsv", split=Split(0, 0))) == [("a", "r", "b")]

    @pytest.mark.parametrize("name", ['5" disk', '"Weird Al" Yankovic', 'say "cheese"', '"'])
    def test_in_plain_tsv_a_quote_is_a_character(self, tmp_path, name):
        write(tmp_path, g_tsv=f"{name}\tr\tb\nb\tr\tc\n")
        assert load_graph(tmp_path / "g.tsv", split=Split(0, 0)).entities[0].id == name

    def test_commas_within_quotes_are_no_delimiters(self, tmp_path):
        write(tmp_path, g_csv='"a, b, c";r;d\n')
        assert names(load_graph(tmp_path / "g.csv", split=Split(0, 0))) == [("a, b, c", "r", "d")]

    def test_semicolons_as_spreadsheets_write_them(self, tmp_path):
        write(tmp_path, g_csv="a;r;b\nb;r;c, d\n")
        assert names(load_graph(tmp_path / "g.csv", split=Split(0, 0)))[1] == ("b", "r", "c, d")

    def test_repeated_triples_count_once_and_are_told(self, tmp_path, caplog):
        write(tmp_path, g_tsv="a\tr\tb\na\tr\tb\nb\tr\ta\n")
        assert len(load_graph(tmp_path / "g.tsv", split=Split(0, 0)).train) == 2
        assert "dropped 1 duplicate triple of" in caplog.text

    def test_parquet_of_numbers(self, tmp_path):
        write_parquet(tmp_path / "g.parquet", {"head": [1, 2], "relation": ["r", "r"], "tail": [2, 3]})
        assert names(load_graph(tmp_path / "g.parquet", split=Split(0, 0))) == [("1", "r", "2"), ("2", "r", "3")]

    def test_parquet_columns_that_are_no_text_are_passed_over(self, tmp_path, caplog):
        columns = {"head": [b"a"], "relation": ["r"], "tail": ["b"], "weight": [0.5], "tags": [["x"]]}
        write_parquet(tmp_path / "g.parquet", columns)
        assert names(load_graph(tmp_path / "g.parquet", split=Split(0, 0))) == [("a", "r", "b")]
        assert "ignored column weight" in caplog.text

    def test_blank_nodes_without_a_label_get_the_same_name_at_each_reading(self, tmp_path):
        write(tmp_path, g_ttl="@prefix x: <http://x/> .\nx:a x:r [ x:r x:b ], [ x:s x:c ] .\n")
        first, again = (load_graph(tmp_path / "g.ttl", split=Split(0, 0)) for _ in range(2))
        assert first.data_hash == again.data_hash
        assert "_:g-1" in {entity.id for entity in first.entities}

    def test_a_table_that_is_passed_over_is_named(self, tmp_path, caplog):
        write(tmp_path, train_tsv="a\tr\tb\n", valid_tsv="b\tr\ta\n", testing_tsv="a\tr\ta\n")
        load_graph(tmp_path)
        assert "ignored testing.tsv" in caplog.text

    def test_names_of_files_with_dots_and_odd_bytes(self, tmp_path):
        write(tmp_path, **{"v1.0-a_tsv": "a\tr\tb\n"})
        assert load_graph(tmp_path / "v1.0-a.tsv").name == "v1.0-a"
        odd = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.tsv"))
        odd.write_text("a\tr\tb\nb\tr\ta\n")
        assert load_graph(odd).name == "caf?"

    def test_n_triples_give_names_descriptions_and_types(self, tmp_path):
        write(
            tmp_path,
            g_nt="""
            <http://x.org/Marie_Curie> <http://x.org/bornIn> <http://x.org/Warsaw> .
            <http://x.org/Warsaw> <http://www.w3.org/2000/01/rdf-schema#label> "Warszawa"@pl .
            <http://x.org/Warsaw> <http://www.w3.org/2000/01/rdf-schema#label> "Warsaw, Poland"@en .
            <http://x.org/Warsaw> <http://www.w3.org/2000/01/rdf-schema#comment> "a capital" .
            <http://x.org/Warsaw> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x.org/City> .
            <http://x.org/Warsaw> <http://x.org/population> "1860281" .
            _:b0 <http://x.org/bornIn> <http://x.org/Warsaw> .
            """,
        )
        kg = load_graph(tmp_path / "g.nt", split=Split(0, 0))
        assert [entity.name for entity in kg.entities] == ["Marie Curie", "Warsaw, Poland", "_:b0"]
        assert kg.entities[1].description == "a capital"
        assert kg.entities[1].type == "City"
        assert kg.relations == (Relation("http://x.org/bornIn", "bornIn"),)

    def test_turtle(self, tmp_path):
        write(tmp_path, g_ttl="@prefix x: <http://x.org/> .\nx:a x:r x:b, x:c .\n")
        assert len(load_graph(tmp_path / "g.ttl", split=Split(0, 0)).train) == 2

    def test_labels_may_stand_in_another_file_than_the_links(self, tmp_path):
        write(
            tmp_path,
            train_nt="<http://x/a> <http://x/r> <http://x/b> .\n",
            valid_nt="<http://x/b> <http://x/r> <http://x/a> .\n<http://x/a> <http://schema.org/name> 'Anna' .".replace(
                "'", '"'
            ),
        )
        assert load_graph(tmp_path).entities[0].name == "Anna"

    def test_tables_may_be_named_beside_a_single_file(self, tmp_path):
        write(tmp_path, g_tsv="a\tr\tb\n", e_tsv="a\tAnna\nb\tBob\n", r_tsv="r\tknows\n")
        kg = load_graph(
            tmp_path / "g.tsv", entities=tmp_path / "e.tsv", relations=tmp_path / "r.tsv", split=Split(0, 0)
        )
        assert kg.entities[0].name == "Anna"
        assert kg.relations[0].name == "knows"

    def test_a_zip_archive_with_a_folder_inside(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
            archive.writestr("my graph/train.tsv", "a\tr\tb\n")
            archive.writestr("my graph/test.tsv", "b\tr\ta\n")
            archive.writestr("my graph/valid.tsv", "a\tr\ta\n")
        assert len(load_graph(tmp_path / "g.zip").test) == 1

    def test_an_entity_of_the_table_that_no_triple_names_is_kept(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="a\nb\nlonely\n")
        assert [entity.id for entity in load_graph(tmp_path).entities] == ["a", "b", "lonely"]


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).map(str.strip)
ids = text.filter(bool)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), to=st.sampled_from([each for each in FORMATS if each != "openke"]))
def test_a_graph_comes_back_unchanged_from_every_format(data, to, tmp_path_factory):
    entity_ids = data.draw(st.lists(ids, min_size=2, max_size=5, unique=True))
    entities = tuple(Entity(i, data.draw(text) or i, data.draw(text), data.draw(text)) for i in entity_ids)
    relations = tuple(
        Relation(i, data.draw(text) or i) for i in data.draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    )
    triple = st.tuples(*(st.integers(0, n - 1) for n in (len(entities), len(relations), len(entities))))
    triples = data.draw(st.lists(triple, min_size=3, max_size=9, unique=True))
    kg = KnowledgeGraph(
        "g", entities, relations, *(np.array(part) for part in (triples[2:], triples[:1], triples[1:2]))
    )
    folder = tmp_path_factory.mktemp("out") / "g"
    again = load_graph(save_graph(kg, folder, to))
    assert again.entities == kg.entities
    assert again.relations == kg.relations
    assert again.data_hash == kg.data_hash


@pytest.mark.parametrize("to", FORMATS)
def test_ids_that_are_iris_blank_nodes_or_neither_come_back(to, tmp_path):
    ids = [
        "http://x.org/a#b",
        "_:b0",
        "http://not an iri",
        "urn:cascader:entity:a",
        "a%20b",
        "_:_:\ufeff",
        "urn:isbn:1",
    ]
    relations = ["http://x.org/r", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "mailto:x@y.org"]
    plain = KnowledgeGraph.from_triples([(a, r, b) for a in ids for b in ids for r in relations if a != b])
    entities = tuple(Entity(e.id, e.name, type="http://x.org/Foo_bar") for e in plain.entities)
    kg = KnowledgeGraph("g", entities, plain.relations, plain.train, plain.valid, plain.test)
    again = load_graph(save_graph(kg, tmp_path / "g", to), split=Split(0, 0))
    assert again.data_hash == kg.data_hash


def test_a_folder_that_is_there_is_not_written_over(toy, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(StorageError, match="out already exists. Choose another folder"):
        save_graph(toy, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "precious"


def test_a_format_that_we_do_not_write_is_an_error(toy, tmp_path):
    with pytest.raises(
        DataError, match="there is no format 'pickle'. Choose one of: tsv, csv, parquet, ntriples, turtle, kgx, neo4j"
    ):
        save_graph(toy, tmp_path / "out", "pickle")


@pytest.mark.parametrize("end", [" ", "\t", "\x85"])
def test_texts_with_white_space_at_an_end_come_back_as_the_graph_has_them(end, tmp_path):
    entities = Entity(f"a{end}", f"{end}aspirin{end}", f"a drug{end}"), Entity("p", "pain")
    kg = KnowledgeGraph("drugs", entities, (Relation("t", f"treats{end}"),), [[0, 0, 1]], [], [])
    assert kg.entities[0] == Entity("a", "aspirin", "a drug")
    saved = save_graph(kg, tmp_path / "graph", "parquet")
    assert load_graph(saved, split=Split(valid=0, test=0)).data_hash == kg.data_hash


def test_names_are_stripped_as_in_a_file(tmp_path):
    kg = KnowledgeGraph.from_triples([(" aspirin\x85", "treats ", "pain"), ("aspirin", "treats", "fever")])
    assert [entity.id for entity in kg.entities] == ["aspirin", "pain", "fever"]
    saved = save_graph(kg, tmp_path / "graph", "parquet")
    assert load_graph(saved, split=Split(valid=0, test=0)).data_hash == kg.data_hash
