"""Budgets to choose from: the best for what they cost, and not too many."""

import pytest

from cascader.cascade import Cascade
from cascader.models import Frequency
from cascader.serve.budget_levels import Stop, frontier, thinned, within_pairs, within_seconds
from cascader.tuning import Trial


def trial(pairs, mrr):
    return Trial(Cascade(Frequency(), name="kge"), mrr, pairs, seconds_per_query=pairs / 100)


def test_the_frontier_leaves_out_what_costs_more_and_is_no_better():
    tried = [trial(0, 0.3), trial(0, 0.4), trial(5, 0.4), trial(10.2, 0.45), trial(10.4, 0.46), trial(50, 0.42)]
    assert [(found.pairs_per_query, found.mrr) for found in frontier(tried)] == [(0, 0.4), (10.4, 0.46)]


@pytest.mark.parametrize(("count", "left"), [(1, 1), (6, 6), (20, 6)])
def test_of_many_some_are_kept_the_first_and_the_last_among_them(count, left):
    tried = [trial(i, i) for i in range(count)]
    kept = thinned(tried)
    assert len({found.mrr for found in kept}) == left
    assert (kept[0], kept[-1]) == (tried[0], tried[-1])


def test_the_best_stop_within_a_budget_is_taken():
    stops = [Stop(pairs, None, seconds, None) for pairs, seconds in ((0, 0.1), (10, 0.2), (50, 1.0))]
    assert [within_pairs(stops, pairs) for pairs in (0, 9, 10, 1000)] == [0, 0, 1, 2]
    assert [within_seconds(stops, seconds) for seconds in (0.01, 0.2, 5)] == [0, 1, 2]
