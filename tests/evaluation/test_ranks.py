import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascader.errors import DataError
from cascader.evaluation import Metrics, rank_golds
from cascader.graph import Candidates


def rank_one(scores, gold, known=()):
    return rank_golds(
        np.array([scores], dtype=np.float32), np.array([0]), np.array([gold]), Candidates.from_lists([list(known)])
    )


def test_libkge_worked_example_of_ties():
    ranks = rank_one([10, 10, 10, 11, 9], gold=0).raw
    assert (ranks.optimistic, ranks.mean, ranks.pessimistic) == (2, 3, 4)


def test_known_answers_do_not_stand_in_the_way():
    ranks = rank_one([10, 10, 10, 11, 9], gold=0, known=[0, 1, 3])
    assert (ranks.filtered.optimistic, ranks.filtered.mean, ranks.filtered.pessimistic) == (1, 1.5, 2)
    assert ranks.raw.mean == 3


def test_a_model_that_scores_everything_alike_ranks_in_the_middle():
    ranks = rank_one([0.5] * 101, gold=7).filtered
    assert (ranks.optimistic, ranks.mean, ranks.pessimistic) == (1, 51, 101)


def test_zero_and_minus_zero_are_a_tie():
    assert rank_one([0.0, -0.0], gold=0).raw.mean == 1.5


def test_infinite_scores_are_ranked_like_others():
    assert rank_one([np.inf, -np.inf, 0, -np.inf], gold=1).raw.mean == 3.5


def test_nan_is_refused_because_it_would_flatter():
    with pytest.raises(DataError, match=r"returned NaN \(1 of 3 scores, the first for entity 2 of question 0"):
        rank_one([1, 2, np.nan], gold=0)


def test_scores_are_not_written_to():
    scores = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = scores.copy()
    rank_golds(scores, np.array([0, 1]), np.array([0, 1]), Candidates.from_lists([[2], [0]]))
    np.testing.assert_array_equal(scores, before)


@given(st.data())
def test_ranks_are_those_of_a_plain_count(data):
    entities = data.draw(st.integers(1, 6))
    score = st.sampled_from([-np.inf, -1.0, 0.0, 1e-30, 1.0, np.inf])
    rows = data.draw(st.lists(st.lists(score, min_size=entities, max_size=entities), min_size=1, max_size=4))
    golds = [data.draw(st.integers(0, entities - 1)) for _ in rows]
    known = [sorted(data.draw(st.sets(st.integers(0, entities - 1)))) for _ in rows]
    ranks = rank_golds(np.array(rows, np.float32), np.arange(len(rows)), np.array(golds), Candidates.from_lists(known))
    for i, (scores, gold) in enumerate(zip(rows, golds, strict=True)):
        others = [s for e, s in enumerate(scores) if e != gold and e not in known[i]]
        above, level = sum(s > scores[gold] for s in others), sum(s == scores[gold] for s in others)
        assert ranks.filtered.optimistic[i] == above + 1
        assert ranks.filtered.pessimistic[i] == above + level + 1
        assert ranks.filtered.mean[i] == above + level / 2 + 1


def test_metrics_are_means_over_all_queries():
    metrics = Metrics.of(np.array([1.0, 2.0, 4.0, 20.0]))
    assert metrics.as_dict() == {
        "queries": 4,
        "mrr": (1 + 1 / 2 + 1 / 4 + 1 / 20) / 4,
        "hits@1": 0.25,
        "hits@3": 0.5,
        "hits@10": 0.75,
        "mean_rank": 6.75,
    }


def test_a_shared_first_place_is_no_hit_at_1():
    assert Metrics.of(np.array([1.5]))["hits@1"] == 0


def test_no_ranks_have_no_mean():
    with pytest.raises(DataError, match="no ranks to average"):
        Metrics.of(np.array([]))
