import numpy as np
import pytest

from cascader.cascade.pruners import Examples, ScoredQueries, score_in_blocks
from cascader.errors import DataError
from cascader.evaluation import evaluate
from cascader.graph import KnowledgeGraph, Queries
from cascader.models import Frequency
from tests.evaluation.test_evaluate import Oracle, random_graph


def test_ranks_are_those_of_the_evaluation_when_the_same_is_known():
    kg = random_graph()
    scorer = Oracle(kg, noise=3.0)
    blocks = list(score_in_blocks(scorer, Queries.from_triples(kg.valid).with_known(kg.known())))
    mean_rank = np.concatenate([block.ranks for block in blocks]).mean()
    assert mean_rank == pytest.approx(evaluate(scorer, kg, "valid").metrics["mean_rank"])


def test_known_facts_are_masked_but_the_gold_never_is(toy):
    known = toy.known(("train", "valid"))
    queries = Queries.from_triples(toy.valid)
    for block in score_in_blocks(Frequency().fit(toy), queries.with_known(known)):
        answers = known.of(block.queries)
        is_gold = answers.ids == block.queries.golds[answers.rows]
        scores = block.scores[answers.rows, answers.ids]
        assert (scores[is_gold] > -np.inf).all()
        assert (scores[~is_gold] == -np.inf).all()


def test_a_question_with_many_golds_never_makes_a_block_larger_than_its_questions():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], valid=[("a", "r", f"e{i}") for i in range(50)])
    blocks = list(
        score_in_blocks(
            Frequency().fit(kg), Queries.from_triples(kg.valid, "tail").with_known(kg.known_before("valid"))
        )
    )
    assert [len(block.queries) for block in blocks] == [1] * 50


def test_a_gold_that_is_masked_is_never_reached():
    queries = Queries(np.array([0]), np.array([0]), np.array([True]), golds=np.array([1]))
    seen = ScoredQueries(queries, np.array([[1.0, -np.inf]]))
    assert seen.worst_ranks.tolist() == [np.inf]
    assert seen.ranks.tolist() == [2.0]


def test_scores_need_a_row_for_each_query():
    queries = Queries(np.array([0]), np.array([0]), np.array([True]), golds=np.array([1]))
    with pytest.raises(DataError, match=r"scores of shape \(2, 3\) for 1 queries, expected a row for each query"):
        ScoredQueries(queries, np.ones((2, 3)))


def test_without_golds_there_is_nothing_to_learn():
    seen = ScoredQueries(Queries(np.array([0]), np.array([0]), np.array([True])), np.ones((1, 3)))
    with pytest.raises(DataError, match="these queries have no gold answers"):
        _ = seen.ranks


def test_both_sides_of_a_triple_are_learnt_from_together():
    kg = random_graph()
    blocks = score_in_blocks(Frequency().fit(kg), Queries.from_triples(kg.valid).with_known(kg.known_before("valid")))
    first, second = Examples.collect(blocks, "compact").split(0.5, seed=0)
    of_first, of_second = ({tuple(triple) for triple in half.triples.tolist()} for half in (first, second))
    assert not of_first & of_second
    assert len(first) == 2 * len(of_first)
