"""People's own graphs: what is fine, and what is an error that says what to do."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascader.datasets import FORMATS, Split, read_graph, write_graph
from cascader.errors import DataError, StorageError
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.storage import write_parquet


def write(folder, **files):
    """Write files by name, the last underscore standing for the dot."""
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def texts(kg):
    return [tuple(entity) for entity in kg.entities]


def names(kg, split="train"):
    return [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.split(split).tolist()]


class TestFine:
    def test_a_single_file_of_names(self, tmp_path):
        write(tmp_path, g_tsv="a\tr\tb\nb\tr\tc\n")
        kg = read_graph(tmp_path / "g.tsv", split=Split(0, 0))
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
        kg = read_graph(tmp_path)
        assert texts(kg) == [("b", "Bee", "an insect", "animal"), ("a", "a", "", "")]
        assert kg.relations == (Relation("r", "stings"),)
        assert [names(kg, split) for split in ("train", "valid", "test")] == [
            [("a", "r", "b")],
            [("b", "r", "a")],
            [("a", "r", "a")],
        ]

    def test_a_header_may_put_the_columns_in_any_order_among_others(self, tmp_path):
        write(tmp_path, g_csv="id,object,predicate,subject\n1,b,r,a\n")
        assert names(read_graph(tmp_path / "g.csv", split=Split(0, 0))) == [("a", "r", "b")]

    @pytest.mark.parametrize(
        "content", [b"a\tr\tb\r\nb\tr\tc\r\n", b"\xef\xbb\xbfa\tr\tb\nb\tr\tc\n", b"a\tr\tb\n\n\nb\tr\tc"]
    )
    def test_windows_line_ends_byte_order_marks_and_blank_lines(self, tmp_path, content):
        write(tmp_path, g_tsv=content)
        assert names(read_graph(tmp_path / "g.tsv", split=Split(0, 0))) == [("a", "r", "b"), ("b", "r", "c")]

    def test_quoted_fields_with_tabs_newlines_and_quotes(self, tmp_path):
        write(
            tmp_path,
            train_tsv="a\tr\tb\n",
            entities_tsv='id\tname\tdescription\na\tA\t"one\ttab, a ""quote""\nand a second line"\nb\tB\tplain\n',
        )
        assert read_graph(tmp_path).entities[0].description == 'one\ttab, a "quote"\nand a second line'

    def test_stray_quotes_far_apart_do_not_swallow_the_rows_between(self, tmp_path):
        rows = ['"Heroes\tr\tx', *(f"e{i}\tr\tx" for i in range(50)), 'disk 5"\tr\ty']
        write(tmp_path, g_tsv="\n".join(rows))
        assert len(read_graph(tmp_path / "g.tsv", split=Split(0, 0)).train) == 52

    @pytest.mark.parametrize("header", ["h\tr\tt", "from\tlabel\tto", "Head Entity\tRelationship\tTail Entity"])
    def test_headers_as_people_write_them(self, tmp_path, header):
        write(tmp_path, g_tsv=f"{header}\na\tr\tb\n")
        assert names(read_graph(tmp_path / "g.tsv", split=Split(0, 0))) == [("a", "r", "b")]

    @pytest.mark.parametrize("name", ['5" disk', '"Weird Al" Yankovic', 'say "cheese"', '"'])
    def test_in_plain_tsv_a_quote_is_a_character(self, tmp_path, name):
        write(tmp_path, g_tsv=f"{name}\tr\tb\nb\tr\tc\n")
        assert read_graph(tmp_path / "g.tsv", split=Split(0, 0)).entities[0].id == name

    def test_commas_within_quotes_are_no_delimiters(self, tmp_path):
        write(tmp_path, g_csv='"a, b, c";r;d\n')
        assert names(read_graph(tmp_path / "g.csv", split=Split(0, 0))) == [("a, b, c", "r", "d")]

    def test_semicolons_as_spreadsheets_write_them(self, tmp_path):
        write(tmp_path, g_csv="a;r;b\nb;r;c, d\n")
        assert names(read_graph(tmp_path / "g.csv", split=Split(0, 0)))[1] == ("b", "r", "c, d")

    def test_repeated_triples_count_once_and_are_told(self, tmp_path, caplog):
        write(tmp_path, g_tsv="a\tr\tb\na\tr\tb\nb\tr\ta\n")
        assert len(read_graph(tmp_path / "g.tsv", split=Split(0, 0)).train) == 2
        assert "left out 1 triples" in caplog.text

    def test_parquet_of_numbers(self, tmp_path):
        write_parquet(tmp_path / "g.parquet", {"head": [1, 2], "relation": ["r", "r"], "tail": [2, 3]})
        assert names(read_graph(tmp_path / "g.parquet", split=Split(0, 0))) == [("1", "r", "2"), ("2", "r", "3")]

    def test_parquet_columns_that_are_no_text_are_passed_over(self, tmp_path, caplog):
        columns = {"head": [b"a"], "relation": ["r"], "tail": ["b"], "weight": [0.5], "tags": [["x"]]}
        write_parquet(tmp_path / "g.parquet", columns)
        assert names(read_graph(tmp_path / "g.parquet", split=Split(0, 0))) == [("a", "r", "b")]
        assert "passed over column weight" in caplog.text

    def test_blank_nodes_without_a_label_get_the_same_name_at_each_reading(self, tmp_path):
        write(tmp_path, g_ttl="@prefix x: <http://x/> .\nx:a x:r [ x:r x:b ], [ x:s x:c ] .\n")
        first, again = (read_graph(tmp_path / "g.ttl", split=Split(0, 0)) for _ in range(2))
        assert first.data_hash == again.data_hash
        assert "_:g-1" in {entity.id for entity in first.entities}

    def test_a_table_that_is_passed_over_is_named(self, tmp_path, caplog):
        write(tmp_path, train_tsv="a\tr\tb\n", valid_tsv="b\tr\ta\n", testing_tsv="a\tr\ta\n")
        read_graph(tmp_path)
        assert "passed over testing.tsv" in caplog.text

    def test_names_of_files_with_dots_and_odd_bytes(self, tmp_path):
        write(tmp_path, **{"v1.0-a_tsv": "a\tr\tb\n"})
        assert read_graph(tmp_path / "v1.0-a.tsv").name == "v1.0-a"
        odd = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.tsv"))
        odd.write_text("a\tr\tb\n")
        assert read_graph(odd).name == "caf?"

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
        kg = read_graph(tmp_path / "g.nt", split=Split(0, 0))
        assert [entity.name for entity in kg.entities] == ["Marie Curie", "Warsaw, Poland", "_:b0"]
        assert kg.entities[1].description == "a capital"
        assert kg.entities[1].type == "City"
        assert kg.relations == (Relation("http://x.org/bornIn", "bornIn"),)

    def test_turtle(self, tmp_path):
        write(tmp_path, g_ttl="@prefix x: <http://x.org/> .\nx:a x:r x:b, x:c .\n")
        assert len(read_graph(tmp_path / "g.ttl", split=Split(0, 0)).train) == 2

    def test_labels_may_stand_in_another_file_than_the_links(self, tmp_path):
        write(
            tmp_path,
            train_nt="<http://x/a> <http://x/r> <http://x/b> .\n",
            valid_nt="<http://x/b> <http://x/r> <http://x/a> .\n<http://x/a> <http://schema.org/name> 'Anna' .".replace(
                "'", '"'
            ),
        )
        assert read_graph(tmp_path).entities[0].name == "Anna"

    def test_tables_may_be_named_beside_a_single_file(self, tmp_path):
        write(tmp_path, g_tsv="a\tr\tb\n", e_tsv="a\tAnna\nb\tBob\n", r_tsv="r\tknows\n")
        kg = read_graph(
            tmp_path / "g.tsv", entities=tmp_path / "e.tsv", relations=tmp_path / "r.tsv", split=Split(0, 0)
        )
        assert kg.entities[0].name == "Anna"
        assert kg.relations[0].name == "knows"

    def test_a_zip_archive_with_a_folder_inside(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
            archive.writestr("my graph/train.tsv", "a\tr\tb\n")
            archive.writestr("my graph/test.tsv", "b\tr\ta\n")
            archive.writestr("my graph/valid.tsv", "a\tr\ta\n")
        assert len(read_graph(tmp_path / "g.zip").test) == 1

    def test_an_entity_of_the_table_that_no_triple_names_is_kept(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="a\nb\nlonely\n")
        assert [entity.id for entity in read_graph(tmp_path).entities] == ["a", "b", "lonely"]


class TestBadInput:
    """Each error names the file and the line, what was found, what was expected, and what to do."""

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tr\tb\nc\tr\n", r"g.tsv:2: found 2 columns, expected 3 as in the first row. The row starts with 'c'"),
            ("a\tr\tb\nc\tr\td\te\n", r"g.tsv:2: found 4 columns, expected 3"),
            (
                "a\tr\tb\t2020\n",
                r"g.tsv:1: found 4 columns, expected 3: head, relation, tail. .*give a table with more",
            ),
            ("a r b\n", r"g.tsv:1: found 1 column, expected 3: head, relation, tail. The row is 'a r b'. Separate"),
            ("head\trelation\tweight\na\tr\tb\n", r"g.tsv: the header head, relation, weight has no column for tail"),
            ("head\trelation\ttail\n", r"g.tsv has a header and no rows"),
            ("", r"g.tsv is empty, expected rows of text"),
            ("\n\n", r"g.tsv has only blank lines"),
            ("a\tr\tb\na\t\tb\n", r"g.tsv:2: found an empty field in \('a', '', 'b'\). A triple needs"),
            (b"a\tr\tb\nJos\xe9\tr\tb\n", r"g.tsv:2: byte 0xe9 is not UTF-8. Save the file as UTF-8"),
            ("a\tr\tb\n".encode("utf-16"), r"g.tsv is UTF-16, expected UTF-8. Convert it"),
            (b"a\tr\tb\na\tr\tb\0\n", r"g.tsv:2: found a NUL byte, expected text. Is this a binary file"),
            (b"a\tr\tb\n" + b"x" * 10_000_000 + b"\tr\tb\n", r"g.tsv:2: the line is longer than .* Shorten its texts"),
            ("a\tr\tb\n" + "x" * 200_000 + "\tr\tb\n", r"g.tsv:2: found a text .*above the limit of 131,072"),
            ("a\tr\tb\rc\tr\td\r", r"g.tsv:1: found a bare carriage return"),
        ],
    )
    def test_a_file_of_triples(self, tmp_path, content, message):
        write(tmp_path, g_tsv=content)
        with pytest.raises(DataError, match=message):
            read_graph(tmp_path / "g.tsv")

    def test_a_quote_that_never_closes(self, tmp_path):
        write(tmp_path, g_csv='a,r,b\n"c,r,d\n' + "e,r,f\n" * 100)
        with pytest.raises(DataError, match=r"g.csv:2: .*A field that starts with a quote must end with one"):
            read_graph(tmp_path / "g.csv")

    def test_a_text_of_ten_megabytes_within_quotes(self, tmp_path):
        write(
            tmp_path,
            train_tsv="a\tr\tb\n",
            entities_tsv='id\tname\na\t"' + ("x y " * 2_500 + "\n") * 1_000 + '"\nb\tB\n',
        )
        with pytest.raises(DataError, match=r"entities.tsv:2: found a text above the limit of 131,072. Shorten it"):
            read_graph(tmp_path)

    def test_a_triple_that_names_an_unlisted_entity(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\nb\tr\tc\n", entities_tsv="a\tA\nb\tB\n")
        with pytest.raises(
            DataError, match=r"train.tsv:2: entity 'c' is not in .*entities.tsv \(2 rows\). Add it there"
        ):
            read_graph(tmp_path)

    def test_a_triple_that_names_an_unlisted_relation(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\nb\ts\ta\n", relations_tsv="r\tR\n")
        with pytest.raises(DataError, match=r"train.tsv:2: relation 's' is not in .*relations.tsv"):
            read_graph(tmp_path)

    def test_an_id_that_stands_twice(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\na\tA\nb\tB\na\tC\n")
        with pytest.raises(
            DataError, match=r"entities.tsv:4: id 'a' stands already at .*entities.tsv:2. Ids must be unique"
        ):
            read_graph(tmp_path)

    def test_an_empty_id(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\n\tA\n")
        with pytest.raises(DataError, match=r"entities.tsv:2: the id is empty"):
            read_graph(tmp_path)

    def test_a_table_without_ids(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="name\tdescription\nA\tfirst\n")
        with pytest.raises(DataError, match=r"the header name, description has no id column. Name one of them id"):
            read_graph(tmp_path)

    def test_splits_that_overlap(self, tmp_path):
        write(tmp_path, train_tsv="x\tr\ty\na\tr\tb\n", valid_tsv="q\tr\tx\n", test_tsv="z\tr\tz\na\tr\tb\n")
        with pytest.raises(
            DataError, match=r"test.tsv:2: this triple of test stands in train too, at .*train.tsv:2 \(1 such"
        ):
            read_graph(tmp_path)

    def test_rdf_with_a_broken_line(self, tmp_path):
        write(tmp_path, g_nt="<http://x/a> <http://x/r> <http://x/b> .\nnonsense\n")
        with pytest.raises(DataError, match=r"g.nt:2: .*Mend the line"):
            read_graph(tmp_path / "g.nt")

    def test_rdf_that_links_nothing(self, tmp_path):
        write(tmp_path, g_nt='<http://x/a> <http://x/age> "7" .\n')
        with pytest.raises(DataError, match="g.nt holds no triples"):
            read_graph(tmp_path / "g.nt")

    @pytest.mark.parametrize("other", ["valid", "test"])
    def test_a_graph_in_one_piece_beside_a_split(self, tmp_path, other):
        write(tmp_path, triples_tsv="a\tr\tb\n", **{f"{other}_tsv": "b\tr\ta\n"})
        with pytest.raises(DataError, match=f"holds both triples.tsv and {other}.tsv. Rename the first to train"):
            read_graph(tmp_path)

    def test_a_header_with_a_name_twice(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\tname\na\tA\tB\n")
        with pytest.raises(DataError, match=r"entities.tsv:1: the header has two columns called 'name'. Rename"):
            read_graph(tmp_path)

    def test_texts_in_rdf_have_the_same_limits(self, tmp_path):
        label = "<http://www.w3.org/2000/01/rdf-schema#label>"
        write(tmp_path, g_nt=f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "{"x" * 200_000}" .\n')
        with pytest.raises(DataError, match=r"g.nt, http://x/a: found a text of 200,000 characters above the limit"):
            read_graph(tmp_path / "g.nt")
        write(tmp_path, g_nt=f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "a\\u0000b" .\n')
        with pytest.raises(DataError, match="found a NUL byte"):
            read_graph(tmp_path / "g.nt")

    def test_statements_nested_beyond_measure(self, tmp_path):
        deep = (
            "<http://x/a> <http://x/r> "
            + "<<( <http://x/a> <http://x/r> " * 5000
            + "<http://x/b>"
            + " )>>" * 5000
            + " ."
        )
        write(tmp_path, g_ttl=deep)
        with pytest.raises(DataError, match=r"g.ttl:1: statements are nested more than 100 deep"):
            read_graph(tmp_path / "g.ttl")

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"head": [1.5], "relation": ["r"], "tail": ["b"]}, "has no column for head"),
            ({"head": ["a\0"], "relation": ["r"], "tail": ["b"]}, "g.parquet, row 1: found a NUL byte"),
            ({"head": [b"\xff"], "relation": ["r"], "tail": ["b"]}, "row 1: found bytes that are not UTF-8"),
            ({"head": [], "relation": [], "tail": []}, "has no rows of text"),
            ({}, "has no rows of text"),
        ],
    )
    def test_odd_parquet(self, tmp_path, columns, message):
        write_parquet(tmp_path / "g.parquet", columns)
        with pytest.raises(DataError, match=message):
            read_graph(tmp_path / "g.parquet")

    def test_a_parquet_file_that_is_none(self, tmp_path):
        write(tmp_path, g_parquet="a\tr\tb\n")
        with pytest.raises(DataError, match="is not a Parquet file"):
            read_graph(tmp_path / "g.parquet")

    def test_a_parquet_file_with_an_empty_cell(self, tmp_path):
        write_parquet(tmp_path / "g.parquet", {"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "c"]})
        with pytest.raises(DataError, match="g.parquet, row 2: found an empty field"):
            read_graph(tmp_path / "g.parquet")

    def test_a_pickle_is_not_even_opened(self, tmp_path):
        write(tmp_path, g_pkl=b"\x80\x04.")
        with pytest.raises(DataError, match="g.pkl has an unknown suffix. Expected one of .tsv, .txt"):
            read_graph(tmp_path / "g.pkl")

    def test_a_path_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match="there is no file or folder .*nowhere"):
            read_graph(tmp_path / "nowhere")

    def test_a_folder_with_nothing_to_read(self, tmp_path):
        write(tmp_path, notes_md="hello")
        with pytest.raises(DataError, match="has no file of triples. Expected train, valid and test, or triples"):
            read_graph(tmp_path)

    def test_a_folder_where_it_is_not_clear_what_is_what(self, tmp_path):
        write(tmp_path, one_tsv="a\tr\tb\n", two_tsv="a\tr\tb\n")
        with pytest.raises(DataError, match="which of one.tsv, two.tsv holds the triples"):
            read_graph(tmp_path)

    def test_a_folder_with_two_files_for_one_split(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", train_csv="a,r,b\n")
        with pytest.raises(DataError, match="holds both train.csv and train.tsv for train. Keep one"):
            read_graph(tmp_path)

    def test_a_file_that_may_not_be_read(self, tmp_path):
        (tmp_path / "train.tsv").mkdir()
        with pytest.raises(DataError, match="has no file of triples"):
            read_graph(tmp_path)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).map(str.strip)
ids = text.filter(bool)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), to=st.sampled_from(FORMATS))
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
    again = read_graph(write_graph(kg, folder, to))
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
    again = read_graph(write_graph(kg, tmp_path / "g", to), split=Split(0, 0))
    assert again.data_hash == kg.data_hash


def test_a_folder_that_is_there_is_not_written_over(toy, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(StorageError, match="out exists already. Choose another folder"):
        write_graph(toy, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "precious"


def test_a_format_that_we_do_not_write_is_an_error(toy, tmp_path):
    with pytest.raises(DataError, match="cannot write 'pickle'. Choose one of: tsv, csv, parquet, ntriples, turtle"):
        write_graph(toy, tmp_path / "out", "pickle")
