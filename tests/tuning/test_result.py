from dataclasses import replace

from cascader.cascade import Cascade
from cascader.models import Frequency
from cascader.tuning import Trial, TuningResult, pareto_front


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


def test_where_no_gain_is_beyond_chance_the_first_tier_answers_alone():
    first, second = (replace(trial(pairs, 0.3 + pairs), p_value=0.9) for pairs in (0, 1))
    assert TuningResult((first, second)).best_trial == first
