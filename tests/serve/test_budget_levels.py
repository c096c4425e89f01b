"""Budgets to choose from: the best at each cost, and not too many."""

import pytest

from cascader.cascade import Cascade
from cascader.models import Frequency
from cascader.serve.budget_levels import BudgetLevel, choose_trials, within_pairs, within_seconds
from cascader.tuning import Trial


def trial(pairs, mrr):
    return Trial(Cascade(Frequency(), name="kge"), mrr, pairs, seconds_per_query=pairs / 100)


def test_of_trials_with_as_many_pairs_when_rounded_up_the_best_is_a_level():
    tried = [trial(0, 0.3), trial(0, 0.4), trial(5, 0.4), trial(10.2, 0.45), trial(10.4, 0.46), trial(50, 0.42)]
    assert [(found.pairs_per_query, found.mrr) for found in choose_trials(tried)] == [(0, 0.4), (10.4, 0.46)]


@pytest.mark.parametrize(("count", "left"), [(1, 1), (6, 6), (20, 6)])
def test_of_many_some_are_kept_the_first_and_the_last_among_them(count, left):
    tried = [trial(i, i) for i in range(count)]
    kept = choose_trials(tried)
    assert len({found.mrr for found in kept}) == left
    assert (kept[0], kept[-1]) == (tried[0], tried[-1])


def test_the_best_level_within_a_budget_is_taken():
    levels = [BudgetLevel(pairs, None, seconds, None) for pairs, seconds in ((0, 0.1), (10, 0.2), (50, 1.0))]
    assert [within_pairs(levels, pairs) for pairs in (0, 9, 10, 1000)] == [0, 0, 1, 2]
    assert [within_seconds(levels, seconds) for seconds in (0.01, 0.2, 5)] == [0, 1, 2]
