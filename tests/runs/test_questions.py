"""Questions and triples from people's files."""

import pytest

from cascader.errors import DataError
from cascader.graph import Queries
from cascader.runs import every_question, read_questions, read_triples


def test_questions_with_and_without_header_and_side(toy, tmp_path):
    for text in ("aspirin\ttreats\n", "entity\trelation\naspirin\ttreats\n", "aspirin\ttreats\ttail\n"):
        (tmp_path / "q.tsv").write_text(text)
        (query,) = read_questions(tmp_path / "q.tsv", toy).required()
        assert query.anchors.tolist() == [toy.entity_index("aspirin")]
        assert query.predicts_tail.tolist() == [True]
    (tmp_path / "q.csv").write_text("relation,side,entity\ntreats,head,fever\n")
    (query,) = read_questions(tmp_path / "q.csv", toy).required()
    assert (query.anchors.tolist(), query.predicts_tail.tolist()) == ([toy.entity_index("fever")], [False])


def test_bad_rows_are_named_and_the_others_kept(toy, tmp_path):
    (tmp_path / "q.tsv").write_text("aspirin\ttreats\ttail\naspirine\ttreats\ttail\naspirin\ttreats\tleft\n")
    rows = read_questions(tmp_path / "q.tsv", toy)
    assert len(rows.found) == 1
    assert "q.tsv:2: no entity is called 'aspirine'" in rows.problems[0]
    assert "q.tsv:3: there is no side 'left'" in rows.problems[1]
    with pytest.raises(DataError, match=r"q.tsv:2: .* \(1 more bad row.\) .*--keep-going"):
        rows.required()


def test_a_table_of_other_columns(toy, tmp_path):
    (tmp_path / "q.tsv").write_text("aspirin\n")
    with pytest.raises(DataError, match="found 1 column, expected entity, relation"):
        read_questions(tmp_path / "q.tsv", toy)


def test_triples_by_name(toy, tmp_path):
    (tmp_path / "t.tsv").write_text("Aspirin\ttreats\tpain\nAnn\tlikes\tpain\n")
    rows = read_triples(tmp_path / "t.tsv", toy)
    assert rows.found == [tuple(toy.test[0].tolist())]
    assert "t.tsv:2: no relation is called 'likes'" in rows.problems[0]


def test_every_question_is_one_that_train_answers(toy):
    asked = every_question(toy)
    expected = Queries.from_triples(toy.train)
    keys = {(a, r, s) for a, r, s in zip(expected.anchors, expected.relations, expected.predicts_tail, strict=True)}
    found = list(zip(asked.anchors, asked.relations, asked.predicts_tail, strict=True))
    assert set(found) == keys
    assert len(found) == len(keys)


@pytest.mark.parametrize(
    ("content", "anchor", "side"),
    [
        ("aspirin\ttreats\t?\n", "aspirin", "tail"),
        ("?\ttreats\tfever\n", "fever", "head"),
        ("subject\tpredicate\tobject\n?\ttreats\tfever\n", "fever", "head"),
        ("tail\trelation\thead\n?\ttreats\taspirin\n", "aspirin", "tail"),
    ],
)
def test_a_question_mark_stands_for_what_is_asked(toy, tmp_path, content, anchor, side):
    (tmp_path / "q.tsv").write_text(content)
    (query,) = read_questions(tmp_path / "q.tsv", toy).required()
    assert query.anchors.tolist() == [toy.entity_index(anchor)]
    assert query.predicts_tail.tolist() == [side == "tail"]


@pytest.mark.parametrize("row", ["?\ttreats\t?", "aspirin\t?\tfever"])
def test_a_row_that_asks_for_two_things_or_for_a_relation_is_a_problem(toy, tmp_path, row):
    (tmp_path / "q.tsv").write_text(row)
    assert "asks for more than one thing" in read_questions(tmp_path / "q.tsv", toy).problems[0]
