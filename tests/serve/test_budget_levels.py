"""Budgets to choose from: the best at each cost, and not too many; and a scorer that counts what is new."""

import numpy as np
import pytest

from cascader.cascade import Cascade
from cascader.graph import Candidates, Queries
from cascader.models import Frequency
from cascader.scoring import ScoreStore, StoredScorer
from cascader.serve.budget_levels import BudgetLevel, choose_trials, within_pairs, within_seconds
from cascader.serve.counting_scorer import CountingScorer
from cascader.tuning import Trial, pareto_front


def trial(pairs, mrr):
    return Trial(Cascade(Frequency(), name="kge"), mrr, pairs, seconds_per_query=pairs / 100)


def test_the_pareto_front_omits_what_costs_more_and_is_no_better():
    tried = [trial(0, 0.3), trial(0, 0.4), trial(5, 0.4), trial(10.2, 0.45), trial(10.4, 0.46), trial(50, 0.42)]
    front = [(found.pairs_per_query, found.mrr) for found in pareto_front(tried)]
    assert front == [(0, 0.4), (10.2, 0.45), (10.4, 0.46)]


def test_on_the_pareto_front_figures_differ_by_more_than_rounding():
    cheap, equal = trial(0, 0.3), trial(5, 0.3 + 1e-9)
    assert pareto_front([equal, cheap]) == [cheap]


def test_the_pareto_front_can_be_that_of_time():
    slow, fast = trial(9, 0.3), trial(5, 0.2)
    assert pareto_front([slow, fast], "seconds_per_query") == [fast, slow]


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


def test_new_pairs_are_counted_and_the_scorer_that_was_given_keeps_its_store(toy, tmp_path):
    store = ScoreStore(tmp_path / "scores" / "kge", {"model": "m", "data": "d"})
    stored = StoredScorer(Frequency().fit(toy), toy, store)
    counting = CountingScorer(stored, toy)
    asked = Queries(np.array([1], dtype=np.int32), np.array([0], dtype=np.int32), np.array([True]))
    for candidates, new in (([0, 2], 2), ([0, 2, 3], 1), ([3], 0)):
        counting.new_pairs.clear()
        counting.score(asked, Candidates.from_lists([candidates]))
        assert counting.new_pairs.total() == new
    assert stored.store is store
    assert np.isnan(store.find(counting.numbering.of(asked, Candidates.from_lists([[0]])))).all()
    counting.write()
    assert not np.isnan(store.find(counting.numbering.of(asked, Candidates.from_lists([[0, 2, 3]])))).any()
