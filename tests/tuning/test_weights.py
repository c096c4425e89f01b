"""Weights for many scorers at once: what they find, and what they leave out."""

import numpy as np
import pytest

from cascader.evaluation.protocol import reciprocal_ranks
from cascader.graph import KnowledgeGraph, Queries
from cascader.tuning.result import chance_of, is_beyond_chance
from cascader.tuning.sample import Sample
from cascader.tuning.weights import (
    Weights,
    add_in_order,
    best_weighted_sum,
    fit_weights,
    held_out_ranks,
)
from tests.evaluation.test_evaluate import random_graph
from tests.tuning.test_search import Noisy


@pytest.fixture(scope="module")
def kg():
    return random_graph(seed=1, entities=60, triples=900)


@pytest.fixture(scope="module")
def scorers(kg):
    useless = Noisy(kg, 1.0, seed=3)
    useless.known = kg.known(())
    return {"good": Noisy(kg, 0.8, seed=1), "useless": useless, "better": Noisy(kg, 0.5, seed=2)}


@pytest.fixture(scope="module")
def sample(scorers, kg):
    return Sample.collect(list(scorers.values()), kg)


def asked(kg):
    return Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))


def test_a_sample_of_all_entities_gives_the_exact_ranks(sample, scorers, kg):
    for place, scorer in enumerate(scorers.values()):
        weights = np.eye(3)[np.full(len(sample.queries), place)]
        np.testing.assert_allclose(sample.reciprocal_ranks(weights), reciprocal_ranks(scorer, asked(kg), kg.known()))


def test_a_sample_of_some_entities_gives_nearly_the_exact_mrr(scorers, kg, monkeypatch):
    monkeypatch.setattr("cascader.tuning.sample._BEST", 8)
    monkeypatch.setattr("cascader.tuning.sample._RANDOM", 16)
    sample = Sample.collect([scorers["good"]], kg)
    assert sample.scores.shape[1] == 1 + 8 + 16
    found = sample.reciprocal_ranks(np.ones((len(sample.queries), 1)))
    assert found.mean() == pytest.approx(reciprocal_ranks(scorers["good"], asked(kg), kg.known()).mean(), abs=0.01)


def test_what_is_drawn_stands_for_all_entities_that_are_not_known(scorers, kg, monkeypatch):
    monkeypatch.setattr("cascader.tuning.sample._BEST", 8)
    monkeypatch.setattr("cascader.tuning.sample._RANDOM", 16)
    sample = Sample.collect([scorers["good"]], kg)
    others = len(kg.entities) - kg.known().of(sample.queries).counts
    np.testing.assert_allclose(sample.stands_for[:, 1:].sum(axis=1), others, rtol=0.05)


def test_a_chain_of_alphas_ranks_as_the_weighted_sum_does(sample, scorers, kg):
    weights = Weights(np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 2.0]]), {1: np.array([[0.5, 0.5, 0.0], [1.0, 1.0, 4.0]])})
    first = next(iter(add_in_order(sample)))
    cascade = type(first)((0, 1, 2), weights, None).cascade(scorers)
    exact = reciprocal_ranks(cascade, asked(kg), kg.known())
    np.testing.assert_allclose(exact, sample.reciprocal_ranks(weights.per_query(sample.queries)), rtol=1e-5)


def test_the_better_scorer_weighs_more_and_the_useless_one_little(sample):
    for good, useless, better in fit_weights(sample).sides:
        assert better > good > useless


def test_fitted_weights_beat_each_scorer_alone(sample):
    together = sample.reciprocal_ranks(fit_weights(sample).per_query(sample.queries)).mean()
    for place in range(3):
        alone = sample.of([place])
        assert together > alone.reciprocal_ranks(np.ones((len(alone.queries), 1))).mean()


def test_a_useless_scorer_is_left_out_and_a_good_one_stays(sample, scorers, kg):
    first, second, third = add_in_order(sample)
    assert (first.scorers, second.scorers) == ((0,), (0, 1))
    assert not is_beyond_chance(second.p_value)
    assert third.scorers == (0, 2)
    assert is_beyond_chance(third.p_value)
    cascade = best_weighted_sum(scorers, kg)
    assert [cascade.name, *(tier.name for tier in cascade.tiers)] == ["good", "better"]


def test_a_scorer_that_later_ones_make_useless_leaves_the_sum(kg):
    weak = Noisy(kg, 1.0, seed=5)
    oracle = Noisy(kg, 1e-3, seed=6)
    *_, last = add_in_order(Sample.collect([weak, oracle], kg))
    assert last.scorers == (1,)


class KnowsHalf:
    """Knows the relations with even numbers, or those with odd ones, and of the others next to nothing."""

    def __init__(self, kg, remainder):
        self.good, self.bad, self.remainder = Noisy(kg, 0.5, 7), Noisy(kg, 3.0, 8 + remainder), remainder

    def score_all(self, queries):
        knows = queries.relations % 2 == self.remainder
        return np.where(knows[:, None], self.good.score_all(queries), self.bad.score_all(queries))


@pytest.fixture(scope="module")
def large(kg):
    return KnowledgeGraph("large", kg.entities, kg.relations, kg.train[:400], kg.train[400:], kg.test)


def test_relations_get_weights_of_their_own_where_that_pays(large):
    sample = Sample.collect([KnowsHalf(large, 0), KnowsHalf(large, 1)], large)
    assert held_out_ranks(sample, [0.5]).mean() > held_out_ranks(sample).mean() + 0.05
    for relation, own in fit_weights(sample, 0.5).relations.items():
        assert (own[:, relation % 2] > own[:, 1 - relation % 2]).all()


def test_a_further_scorer_is_judged_with_weights_by_relation_if_those_before_it_are(large):
    scorers = [KnowsHalf(large, 0), KnowsHalf(large, 1), Noisy(large, 1.2, seed=9)]
    *_, last = add_in_order(Sample.collect(scorers, large))
    assert last.scorers == (0, 1, 2)
    assert is_beyond_chance(last.p_value)
    assert last.weights.relations


def test_constant_scores_get_no_say_and_break_nothing(kg):
    class Constant:
        def score_all(self, queries):
            return np.zeros((len(queries), len(kg.entities)), dtype=np.float32)

    sample = Sample.collect([Constant(), Noisy(kg, 1.0, seed=1)], kg)
    *_, last = add_in_order(sample)
    assert last.scorers == (1,)
    assert fit_weights(sample.of([0])).sides.shape == (2, 1)


def test_a_gain_on_every_triple_is_beyond_chance_and_none_is_not():
    triples = np.tile(np.arange(20), 2)
    assert is_beyond_chance(chance_of(np.full(40, 0.1), triples))
    assert not is_beyond_chance(chance_of(np.zeros(40), triples))
    assert not is_beyond_chance(chance_of(np.full(40, -0.1), triples))
