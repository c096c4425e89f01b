"""Plain tables are read by a fast parser, all others line by line: whichever reads a file, the graph is the same."""

import logging

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cascader.datasets import Split, load_graph, tables
from cascader.errors import DataError

#: What makes files odd: separators, quotes, line ends, blanks, byte order marks, and texts that parsers like to change.
PIECES = ["a", "b", "c ", "é", "\u2028", "NA", "null", "1", "head", "relation", "tail", "", " ", '"', "\t", ",", ";"]
ODD = ["\n", "\r\n", "\r", "\0", "\ufeff", "\ud800"]
cells = st.sampled_from(PIECES[:12])
plain_rows = st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=12)
odd_files = st.lists(st.sampled_from([*PIECES, "\t", "\t", "\n", "\n", *ODD]), max_size=30).map("".join)


def outcome(path, caplog):
    """All that a reader says of a file: the graph and the log, or the error."""
    caplog.clear()
    try:
        kg = load_graph(path, split=Split(0.2, 0.2))
    except DataError as error:
        return str(error)
    return kg.entities, kg.relations, [kg.split(s).tolist() for s in ("train", "valid", "test")], caplog.messages


def both(path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    fast = outcome(path, caplog)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_plain_table", lambda *_: None)
        return fast, outcome(path, caplog)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


class TestBothReadersAgree:
    @pytest.fixture(autouse=True)
    def _use(self, folder, caplog):
        self.folder, self.caplog = folder, caplog

    def check(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            fast, careful = both(path, self.caplog, patch)
        assert fast == careful

    @settings(deadline=None)
    @given(plain_rows, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["g.tsv", "g.csv"]))
    def test_on_plain_rows(self, rows, end, ends_well, name):
        separator = "\t" if name == "g.tsv" else ","
        text = end.join(separator.join(row) for row in rows) + (end if ends_well else "")
        self.check(name, text.encode())

    @settings(deadline=None)
    @given(odd_files, st.sampled_from(["g.tsv", "g.csv"]))
    @example("a\tr\tb\n\nc\tr\td\n", "g.tsv")
    @example("a;r;b\nc;r;d\n", "g.csv")
    @example('a\tr\t"b"\n', "g.tsv")
    @example('a\tr\t5" disk\n', "g.tsv")
    @example("head,relation,tail,tail\na,r,b,c\n", "g.csv")
    @example("head\trelation\ttail\n", "g.tsv")
    @example("\ufeffhead\trelation\ttail\na\tr\tb", "g.tsv")
    @example("\ufeff\ufeffa", "g.tsv")
    @example("a\tr\tb\ra\tr\tc\n", "g.tsv")
    def test_on_odd_files(self, text, name):
        self.check(name, text.encode(errors="surrogatepass"))

    def test_on_a_text_that_is_too_long(self):
        self.check("g.tsv", b"a\tr\tb\n" + b"x" * (tables.MAX_TEXT_CHARACTERS + 1) + b"\tr\tb\n")

    def test_on_texts_beside_the_ids(self):
        rows = ["x_id,x_name,relation,y_id,y_name,split", "1,,r,2,two,train", "2,zwei,r,1,one,test", "1,uno,r,3,,train"]
        self.check("g.csv", "\n".join(rows).encode())


def test_a_plain_file_is_read_by_the_fast_parser(folder, monkeypatch):
    path = folder / "plain.tsv"
    path.write_text("".join(f"entity {i % 700}\tr {i % 7}\tentity {i % 900}\n" for i in range(10_000)))
    monkeypatch.setattr(tables, "parse_with_care", None)
    kg = load_graph(path, split=Split(0, 0))
    assert (len(kg.entities), len(kg.relations), len(kg.train)) == (900, 7, 6300)
    assert [entity.id for entity in kg.entities[:3]] == ["entity 0", "entity 1", "entity 2"]


def test_an_error_in_a_large_file_names_its_line(folder):
    path = folder / "odd.tsv"
    path.write_text("".join(f"entity {i}\tr\tentity {i + 1}\n" for i in range(5000)) + "one\ttwo\n")
    with pytest.raises(DataError, match=r"odd\.tsv:5001: found 2 columns, expected 3"):
        load_graph(path)
