"""Tables of triples under the headers that people give them, and questions where it is not clear what a row is."""

import pytest

from cascader.datasets import Split, load_graph
from cascader.datasets.columns import is_triple_header
from cascader.errors import DataError
from cascader.graph import Entity, Relation
from tests.datasets.files import write

WHOLE = Split(0, 0)
PRIMEKG = (
    "relation,display_relation,x_index,x_id,x_type,x_name,x_source,y_index,y_id,y_type,y_name,y_source\n"
    "indication,treats,0,9796,drug,Aspirin,DrugBank,1,9796,disease,pain,MONDO\n"
)


def names(kg):
    return [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.train.tolist()]


@pytest.mark.parametrize(
    "header",
    [
        "source\trelation\ttarget",
        "from\tedge_type\tto",
        "subject\tpredicate\tobject",
        "h\tr\tt",
        "s\tp\to",
        "head_id\trelation_id\ttail_id",
        "x_name\trelation\ty_name",
        "x_id\tedge_type\ty_id",
        "Source Node\tRelationship Type\tTarget Node",
        "headEntity\trel\ttailEntity",
        ":START_ID(Drug)\t:TYPE\t:END_ID(Disease)",
        "subject_id\tpredicate_id\tobject_id",
        "src\tinteraction\tdst",
        "source\tBeziehung\ttarget",
    ],
)
def test_headers_as_people_write_them(tmp_path, header):
    write(tmp_path, g_tsv=f"{header}\na\tr\tb\n")
    assert names(load_graph(tmp_path / "g.tsv", split=WHOLE)) == [("a", "r", "b")]


@pytest.mark.parametrize("row", [("x", "r", "y"), ("source", "is a", "thing"), ("type", "label", "class"), ("h", "t")])
def test_a_row_of_facts_is_not_taken_for_a_header(row):
    assert not is_triple_header(row)


def test_further_columns_are_listed_and_where_a_fact_is_from_is_no_end_of_it(tmp_path, caplog):
    caplog.set_level("INFO")
    write(tmp_path, g_csv="from,relation,to,source,weight\na,r,b,PubMed,0.5\n")
    assert names(load_graph(tmp_path / "g.csv", split=WHOLE)) == [("a", "r", "b")]
    assert "head, relation and tail are the columns from, relation, to; not read: source, weight." in caplog.text


def test_names_and_types_beside_the_ids_are_those_of_the_entities(tmp_path):
    write(tmp_path, kg_csv=PRIMEKG)
    kg = load_graph(tmp_path / "kg.csv", split=WHOLE)
    assert kg.entities == (Entity("0", "Aspirin", type="drug"), Entity("1", "pain", type="disease"))
    assert kg.relations == (Relation("indication", "treats"),)


def test_a_list_of_edges_without_relations_has_a_single_one(tmp_path, caplog):
    write(tmp_path, g_csv="source,target,weight\na,b,1\nb,c,0.5\n")
    assert names(load_graph(tmp_path / "g.csv", split=WHOLE)) == [("a", "related to", "b"), ("b", "related to", "c")]
    assert "names no relation: all of its edges are read as 'related to'" in caplog.text


def test_which_column_is_the_relation_is_asked_where_several_may_be(tmp_path):
    write(tmp_path, g_csv="source,how,since,target\na,r,May,b\n")
    with pytest.raises(DataError, match="no column for relation. Is it how or since. .*--columns source,how,target"):
        load_graph(tmp_path / "g.csv")
    kg = load_graph(tmp_path / "g.csv", split=WHOLE, columns=("source", "how", "target"))
    assert names(kg) == [("a", "r", "b")]


def test_the_index_of_a_data_frame_is_a_column_without_a_name(tmp_path, caplog):
    caplog.set_level("INFO")
    write(tmp_path, g_csv=",head,relation,tail\n0,a,r,b\n1,b,r,c\n")
    assert names(load_graph(tmp_path / "g.csv", split=WHOLE)) == [("a", "r", "b"), ("b", "r", "c")]
    assert "the columns head, relation, tail; not read: one without a name." in caplog.text


class TestAStrangeHeader:
    ROWS = "Wirkstoff;Beziehung;Krankheit\na;hilft gegen;b\nc;hilft gegen;b\na;hilft gegen;d\n"

    def test_it_is_asked_about(self, tmp_path, caplog):
        write(tmp_path, g_csv=self.ROWS)
        assert len(load_graph(tmp_path / "g.csv", split=WHOLE).train) == 4
        assert "g.csv:1: is this a header? 'Wirkstoff | Beziehung | Krankheit' occur nowhere else" in caplog.text
        assert '--columns "Wirkstoff,Beziehung,Krankheit"; if it is a triple, with --columns 1,2,3' in caplog.text

    def test_it_is_asked_about_without_any_row_below_it(self, tmp_path, caplog):
        write(tmp_path, g_csv="Wirkstoff;Beziehung;Krankheit\n")
        load_graph(tmp_path / "g.csv", split=WHOLE)
        assert "g.csv:1: is this a header? It is the only row, and was read as a triple." in caplog.text
        with pytest.raises(DataError, match=r"g.csv has a header but no rows"):
            load_graph(tmp_path / "g.csv", columns=("Wirkstoff", "Beziehung", "Krankheit"))

    def test_one_triple_below_a_header_or_in_one_of_several_splits_is_no_header(self, tmp_path, caplog):
        write(tmp_path, g_csv="head;relation;tail\na;r;b\n", train_csv="a;r;b\nb;r;a\n", test_csv="b;r;b\n")
        load_graph(tmp_path / "g.csv", split=WHOLE)
        (tmp_path / "g.csv").unlink()
        load_graph(tmp_path, split=WHOLE)
        assert "is this a header" not in caplog.text

    def test_it_is_asked_about_from_two_rows_below_it(self, tmp_path, caplog):
        lines = self.ROWS.splitlines(keepends=True)
        for count, is_asked in ((2, False), (3, True)):
            write(tmp_path, g_csv="".join(lines[:count]))
            load_graph(tmp_path / "g.csv", split=WHOLE)
            assert ("is this a header" in caplog.text) == is_asked

    def test_it_is_asked_about_in_a_table_of_entities_if_no_triple_mentions_it(self, tmp_path, caplog):
        write(tmp_path, train_tsv="a\tr\tb\nb\tr\tc\n", entities_tsv="Kennung\tBezeichnung\na\tA\nb\tB\nc\tC\n")
        load_graph(tmp_path, split=WHOLE)
        assert (
            "entities.tsv:1: is this a header? 'Kennung' occurs in no triple. It was read as an entity. If the row "
            "names the columns, call the first one id." in caplog.text
        )

    @pytest.mark.parametrize("entities", ["a\tA\nb\tB\nc\tC\n", "id\tname\na\tA\nb\tB\nc\tC\nd\tD\n"])
    def test_it_is_not_asked_about_in_a_table_without_it(self, tmp_path, caplog, entities):
        write(tmp_path, train_tsv="a\tr\tb\nb\tr\tc\n", entities_tsv=entities)
        load_graph(tmp_path, split=WHOLE)
        assert "is this a header" not in caplog.text

    def test_in_two_splits_the_error_asks_about_it(self, tmp_path):
        write(tmp_path, train_csv=self.ROWS, valid_csv=self.ROWS.splitlines()[0] + "\nc;hilft gegen;d\n")
        with pytest.raises(DataError, match=r"valid.csv:1: this triple .* If these rows are headers, name the columns"):
            load_graph(tmp_path)
        write(tmp_path, valid_csv="c;hilft gegen;d\na;hilft gegen;b\n")
        with pytest.raises(DataError, match="trained on.$"):
            load_graph(tmp_path)

    def test_both_answers_end_the_question(self, tmp_path, caplog):
        write(tmp_path, g_csv=self.ROWS)
        as_header = load_graph(tmp_path / "g.csv", split=WHOLE, columns=("Wirkstoff", "Beziehung", "Krankheit"))
        as_triple = load_graph(tmp_path / "g.csv", split=WHOLE, columns=(1, 2, 3))
        assert (len(as_header.train), len(as_triple.train)) == (3, 4)
        assert "is this a header" not in caplog.text

    @pytest.mark.parametrize("first", ["a;kennt;z", "y;hilft gegen;z", "y;kennt;b"])
    def test_a_word_that_occurs_again_makes_it_a_fact(self, tmp_path, caplog, first):
        write(tmp_path, g_csv="\n".join([first, *self.ROWS.splitlines()[1:]]))
        load_graph(tmp_path / "g.csv")
        assert "is this a header" not in caplog.text

    def test_beside_a_list_of_entities_the_error_asks_it(self, tmp_path):
        write(tmp_path, triples_csv=self.ROWS, entities_txt="a\nb\nc\nd\n")
        with pytest.raises(DataError, match="'Wirkstoff' is not in .*If this row is a header, name its columns with"):
            load_graph(tmp_path)

    def test_columns_that_are_not_there_are_told_beside_those_that_are(self, tmp_path):
        write(tmp_path, g_csv=self.ROWS)
        with pytest.raises(
            DataError, match="no columns drug, r, t. Its first row is 'Wirkstoff, Beziehung, Krankheit'"
        ):
            load_graph(tmp_path / "g.csv", columns=("drug", "r", "t"))


def test_a_column_of_splits_is_kept(tmp_path):
    write(tmp_path, g_csv="head,relation,tail,split\na,r,b,train\nb,r,c,dev\nc,r,a,test\nc,r,b,train\n")
    kg = load_graph(tmp_path / "g.csv")
    assert [len(kg.split(split)) for split in ("train", "valid", "test")] == [2, 1, 1]


def test_a_column_of_splits_that_says_something_else_is_not(tmp_path):
    write(tmp_path, g_csv="head,relation,tail,split\na,r,b,left\nb,r,c,right\n")
    assert len(load_graph(tmp_path / "g.csv", split=WHOLE).train) == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("g_tsv", "a;r;b\nc;r;d\n", r"g.tsv:1: found 1 column, .*seems to have semicolons: rename it to .csv"),
        ("g_csv", "a\nb\n", r"g.csv:1: found 1 column, expected 3: head, relation, tail"),
        ("g_csv", "a,b\nb,c\n", r"found 2 columns, .*all of one kind, add a header: source, target"),
        (
            "g_csv",
            "source;relation;target\na;r\n",
            r"g.csv:2: found 2 columns, expected 3 .*Complete or delete the row",
        ),
        ("g_csv", b"\xef\xbb\xbfsource;relation;target\n", r"g.csv has a header but no rows, .*Add the rows below it"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(tmp_path, file, content, message):
    write(tmp_path, **{file: content})
    with pytest.raises(DataError, match=message):
        load_graph(tmp_path / file.replace("_", "."))
