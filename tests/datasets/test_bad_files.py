"""Files that are an error, which says what was found, where, and what to do."""

import pytest

from cascader.datasets import load_graph
from cascader.errors import DataError
from cascader.storage import write_parquet
from tests.datasets.files import write


class TestBadInput:
    """Each error names the file and the line, what was found, what was expected, and what to do."""

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tr\tb\nc\tr\n", r"g.tsv:2: found 2 columns, expected 3 as in the first row. The row starts with 'c'"),
            ("a\tr\tb\nc\tr\td\te\n", r"g.tsv:2: found 4 columns, expected 3"),
            (
                "a\tr\tb\t2020\n",
                r"g.tsv:1: found 4 columns, expected 3: head, relation, tail. .*--columns 1,2,3 if there is no header",
            ),
            ("a r b\n", r"g.tsv:1: found 1 column, expected 3: head, relation, tail. The row is 'a r b'. Separate"),
            ("head\trelation\tweight\na\tr\tb\n", r"g.tsv: the header head, relation, weight has no column for tail"),
            ("head\trelation\ttail\n", r"g.tsv has a header but no rows"),
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
            load_graph(tmp_path / "g.tsv")

    def test_a_quote_that_never_closes(self, tmp_path):
        write(tmp_path, g_csv='a,r,b\n"c,r,d\n' + "e,r,f\n" * 100)
        with pytest.raises(DataError, match=r"g.csv:2: .*A field that starts with a quote must end with one"):
            load_graph(tmp_path / "g.csv")

    def test_a_text_of_ten_megabytes_within_quotes(self, tmp_path):
        write(
            tmp_path,
            train_tsv="a\tr\tb\n",
            entities_tsv='id\tname\na\t"' + ("x y " * 2_500 + "\n") * 1_000 + '"\nb\tB\n',
        )
        with pytest.raises(DataError, match=r"entities.tsv:2: found a text above the limit of 131,072. Shorten it"):
            load_graph(tmp_path)

    def test_a_triple_that_names_an_unlisted_entity(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\nb\tr\tc\n", entities_tsv="a\tA\nb\tB\n")
        with pytest.raises(
            DataError, match=r"train.tsv:2: entity 'c' is not in .*entities.tsv \(2 rows\). Add it there"
        ):
            load_graph(tmp_path)

    def test_a_triple_that_names_an_unlisted_relation(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\nb\ts\ta\n", relations_tsv="r\tR\n")
        with pytest.raises(DataError, match=r"train.tsv:2: relation 's' is not in .*relations.tsv"):
            load_graph(tmp_path)

    def test_an_id_that_stands_twice(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\na\tA\nb\tB\na\tC\n")
        with pytest.raises(
            DataError, match=r"entities.tsv:4: id 'a' is already defined at .*entities.tsv:2. Ids must be unique"
        ):
            load_graph(tmp_path)

    def test_an_empty_id(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\n\tA\n")
        with pytest.raises(DataError, match=r"entities.tsv:2: the id is empty"):
            load_graph(tmp_path)

    def test_a_table_without_ids(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="name\tdescription\nA\tfirst\n")
        with pytest.raises(DataError, match=r"the header name, description has no id column. Name one of them id"):
            load_graph(tmp_path)

    def test_splits_that_overlap(self, tmp_path):
        write(tmp_path, train_tsv="x\tr\ty\na\tr\tb\n", valid_tsv="q\tr\tx\n", test_tsv="z\tr\tz\na\tr\tb\n")
        with pytest.raises(
            DataError, match=r"test.tsv:2: this triple of test is also in train, at .*train.tsv:2 \(1 such triple\)"
        ):
            load_graph(tmp_path)

    def test_rdf_with_a_broken_line(self, tmp_path):
        write(tmp_path, g_nt="<http://x/a> <http://x/r> <http://x/b> .\nnonsense\n")
        with pytest.raises(DataError, match=r"g.nt:2: .*Fix the line"):
            load_graph(tmp_path / "g.nt")

    def test_rdf_that_links_nothing(self, tmp_path):
        write(tmp_path, g_nt='<http://x/a> <http://x/age> "7" .\n')
        with pytest.raises(DataError, match="g.nt has no triples"):
            load_graph(tmp_path / "g.nt")

    @pytest.mark.parametrize("other", ["valid", "test"])
    def test_a_graph_in_one_piece_beside_a_split(self, tmp_path, other):
        write(tmp_path, triples_tsv="a\tr\tb\n", **{f"{other}_tsv": "b\tr\ta\n"})
        with pytest.raises(DataError, match=f"has both triples.tsv and {other}.tsv. Rename the first to train"):
            load_graph(tmp_path)

    def test_a_header_with_a_name_twice(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", entities_tsv="id\tname\tname\na\tA\tB\n")
        with pytest.raises(DataError, match=r"entities.tsv:1: the header has two columns called 'name'. Rename"):
            load_graph(tmp_path)

    def test_texts_in_rdf_have_the_same_limits(self, tmp_path):
        label = "<http://www.w3.org/2000/01/rdf-schema#label>"
        write(tmp_path, g_nt=f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "{"x" * 200_000}" .\n')
        with pytest.raises(DataError, match=r"g.nt, http://x/a: found a text of 200,000 characters above the limit"):
            load_graph(tmp_path / "g.nt")
        write(tmp_path, g_nt=f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "a\\u0000b" .\n')
        with pytest.raises(DataError, match="found a NUL byte"):
            load_graph(tmp_path / "g.nt")

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
            load_graph(tmp_path / "g.ttl")

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
            load_graph(tmp_path / "g.parquet")

    def test_a_parquet_file_that_is_none(self, tmp_path):
        write(tmp_path, g_parquet="a\tr\tb\n")
        with pytest.raises(DataError, match="is not a Parquet file"):
            load_graph(tmp_path / "g.parquet")

    def test_a_parquet_file_with_an_empty_cell(self, tmp_path):
        write_parquet(tmp_path / "g.parquet", {"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "c"]})
        with pytest.raises(DataError, match="g.parquet, row 2: found an empty field"):
            load_graph(tmp_path / "g.parquet")

    def test_a_pickle_is_not_even_opened(self, tmp_path):
        write(tmp_path, g_pkl=b"\x80\x04.")
        with pytest.raises(DataError, match="g.pkl has an unknown suffix, expected one of .tsv, .txt"):
            load_graph(tmp_path / "g.pkl")

    def test_a_path_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match="there is no file or folder .*nowhere"):
            load_graph(tmp_path / "nowhere")

    def test_a_folder_with_nothing_to_read(self, tmp_path):
        write(tmp_path, notes_md="hello")
        with pytest.raises(DataError, match="has no file of triples. Expected train, valid and test, or triples"):
            load_graph(tmp_path)

    def test_a_folder_where_it_is_not_clear_what_is_what(self, tmp_path):
        write(tmp_path, one_tsv="a\tr\tb\n", two_tsv="a\tr\tb\n")
        with pytest.raises(DataError, match="which of one.tsv, two.tsv contains the triples"):
            load_graph(tmp_path)

    def test_a_folder_with_two_files_for_one_split(self, tmp_path):
        write(tmp_path, train_tsv="a\tr\tb\n", train_csv="a,r,b\n")
        with pytest.raises(DataError, match="has both train.csv and train.tsv for train. Keep one"):
            load_graph(tmp_path)

    def test_a_file_that_may_not_be_read(self, tmp_path):
        (tmp_path / "train.tsv").mkdir()
        with pytest.raises(DataError, match="has no file of triples"):
            load_graph(tmp_path)


def test_a_header_of_long_and_many_names_is_cut_in_the_message(tmp_path):
    write_parquet(tmp_path / "train.parquet", {"y" * 100_000: ["a"], **{f"column {i}": ["b"] for i in range(100)}})
    with pytest.raises(DataError, match=r"the header y{40}…, column_0, .*, … has no column for head") as error:
        load_graph(tmp_path / "train.parquet")
    assert len(str(error.value)) < 1000
