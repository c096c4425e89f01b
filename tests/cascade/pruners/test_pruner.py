import numpy as np
import pytest

from cascader.cascade.pruners import top_candidates
from cascader.errors import DataError
from cascader.graph import Queries


def asked(count):
    return Queries(np.zeros(count, int), np.zeros(count, int), np.ones(count, bool))


def test_each_query_gets_as_many_as_it_wants():
    rng = np.random.default_rng(0)
    scores = rng.integers(6, size=(150, 30)).astype(np.float32)  # full of ties
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    counts = rng.integers(1, 40, size=150)
    kept = top_candidates(asked(150), scores, counts)
    for row in range(150):
        order = [entity for entity in np.argsort(-scores[row], kind="stable") if scores[row, entity] > -np.inf]
        assert kept[row].tolist() == order[: counts[row]]


def test_of_equal_scores_the_lower_id_is_kept():
    assert top_candidates(asked(1), np.array([[1.0, 2.0, 2.0, 2.0]]), np.array([2]))[0].tolist() == [1, 2]


def test_a_query_that_wants_none_gets_none():
    scores = np.ones((2, 3), dtype=np.float32)
    assert top_candidates(asked(2), scores, np.array([0, 2])).counts.tolist() == [0, 2]
    assert top_candidates(asked(2), scores, np.array([0, 0])).counts.tolist() == [0, 0]


def test_a_score_that_is_no_number_is_an_error():
    with pytest.raises(DataError, match="the scorer returned NaN"):
        top_candidates(asked(1), np.array([[1.0, np.nan]]), np.array([1]))


def test_rows_and_queries_must_be_as_many():
    with pytest.raises(DataError, match="there are 2 rows of scores for 1 queries, expected one per query"):
        top_candidates(asked(1), np.ones((2, 3)), np.array([1]))
