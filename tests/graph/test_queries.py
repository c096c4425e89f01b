import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascader.errors import DataError
from cascader.graph import KnownAnswers, Queries

triple_lists = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), max_size=20)


def as_triples(rows):
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


@given(triple_lists)
def test_queries_give_back_the_triples_they_were_made_from(rows):
    triples = as_triples(rows)
    np.testing.assert_array_equal(Queries.from_triples(triples).triples(), np.concatenate([triples, triples]))


@given(triple_lists)
def test_each_query_finds_its_question(rows):
    queries = Queries.from_triples(as_triples(rows))
    questions, question_of = queries.unique()
    for name in ("anchors", "relations", "predicts_tail"):
        np.testing.assert_array_equal(getattr(questions, name)[question_of], getattr(queries, name))
    distinct = {*zip(queries.anchors.tolist(), queries.relations.tolist(), queries.predicts_tail.tolist(), strict=True)}
    assert len(questions) == len(distinct)


@given(triple_lists)
def test_known_answers_are_those_that_a_loop_over_all_triples_finds(rows):
    known = KnownAnswers(as_triples(rows), entity_count=5, relation_count=3)
    everything = as_triples([(a, r, 0) for a in range(5) for r in range(3)])
    queries = Queries.from_triples(everything)
    answers = known.of(queries)
    for i in range(len(queries)):
        anchor, relation = queries.anchors[i], queries.relations[i]
        if queries.predicts_tail[i]:
            expected = {t for h, r, t in rows if (h, r) == (anchor, relation)}
        else:
            expected = {h for h, r, t in rows if (t, r) == (anchor, relation)}
        assert answers[i].tolist() == sorted(expected)


def test_one_side_can_be_asked_for():
    queries = Queries.from_triples(as_triples([(0, 0, 1)]), side="head")
    assert queries.sides == ["head"]
    assert queries.anchors.tolist() == [1]


def test_blocks_follow_one_another():
    queries = Queries.from_triples(as_triples([(i, 0, i + 1) for i in range(5)]))
    blocks = list(queries.blocks(4))
    assert [len(block) for block in blocks] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([block.anchors for block in blocks]), queries.anchors)


def test_columns_of_different_lengths_are_an_error():
    with pytest.raises(DataError, match=r"different lengths \[1, 2\]"):
        Queries(np.array([0, 1]), np.array([0]), np.array([True]))


def test_queries_without_gold_answers_say_so():
    with pytest.raises(DataError, match="no gold answers"):
        Queries(np.array([0]), np.array([0]), np.array([True])).triples()


@given(triple_lists)
def test_known_facts_are_counted_once_for_each_side_of_their_relation(rows):
    known = KnownAnswers(as_triples(rows), entity_count=5, relation_count=3)
    expected = np.zeros((6, 5), dtype=int)
    for head, relation, tail in set(rows):
        expected[relation, tail] += 1
        expected[3 + relation, head] += 1
    np.testing.assert_array_equal(known.counts.toarray(), expected)


@given(triple_lists, st.integers(0, 2))
def test_links_lead_from_anchors_to_answers_in_both_directions(rows, relation):
    known = KnownAnswers(as_triples(rows), entity_count=5, relation_count=3)
    expected = np.zeros((5, 5))
    for head, own, tail in rows:
        if own == relation:
            expected[head, tail] = 1
    np.testing.assert_array_equal(known.links(relation).toarray(), expected)
    np.testing.assert_array_equal(known.links(3 + relation).toarray(), expected.T)
