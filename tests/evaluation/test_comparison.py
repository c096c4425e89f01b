"""Two evaluations side by side: how they differ, and whether by chance."""

import numpy as np
import pytest

from cascader.errors import DataError
from cascader.evaluation import compare, evaluate
from cascader.models import Frequency
from tests.evaluation.test_evaluate import Oracle, random_graph


def test_a_run_does_not_differ_from_itself():
    kg = random_graph()
    evaluation = evaluate(Frequency().fit(kg), kg)
    difference = compare(evaluation, evaluation).differences["mrr"]
    assert (difference.value, difference.interval, difference.p_value) == (0, (0, 0), 1)


def test_a_clear_difference_is_not_put_down_to_chance():
    kg = random_graph()
    comparison = compare(evaluate(Frequency().fit(kg), kg), evaluate(Oracle(kg), kg))
    difference = comparison.differences["mrr"]
    assert difference.value == pytest.approx(comparison.second.mrr - comparison.first.mrr)
    assert difference.interval[0] > 0
    assert difference.p_value < 0.001


def test_the_p_value_agrees_with_scipys_on_a_small_sample():
    from scipy.stats import permutation_test

    from cascader.evaluation.metrics import paired_p_values

    deltas = np.random.default_rng(1).normal(0.3, 1, size=10)
    exact = permutation_test((deltas,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert paired_p_values(deltas[None], seed=0)[0] == pytest.approx(exact, abs=0.02)


def test_intervals_cover_the_true_mean_about_as_often_as_they_say():
    from cascader.evaluation.metrics import mean_intervals

    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(200, 100))
    covered = sum(low <= 1 <= high for low, high in mean_intervals(samples, seed=0))
    assert 0.88 <= covered / 200 <= 0.99


def test_both_queries_of_a_triple_are_drawn_together(toy):
    evaluation = evaluate(Frequency().fit(toy), toy)
    assert evaluation.per_triple.shape == (5, len(toy.test))


def test_runs_on_other_data_or_splits_cannot_be_compared(toy):
    one = evaluate(Frequency().fit(toy), toy)
    with pytest.raises(DataError, match="the first has split test, the second valid"):
        compare(one, evaluate(Frequency().fit(toy), toy, "valid"))
    kg = random_graph()
    with pytest.raises(DataError, match="the first has data hash"):
        compare(one, evaluate(Frequency().fit(kg), kg))
