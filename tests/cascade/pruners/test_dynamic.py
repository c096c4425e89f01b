import numpy as np
import pytest

from cascader.cascade.pruners import DynamicTopK, ScoredQueries, StaticTopK
from cascader.errors import DataError, SettingsError
from tests.cascade.pruners.worlds import coverage, world
from tests.contracts import LearningPrunerContract
from tests.contracts.pruner import a_block


class TestCompact(LearningPrunerContract):
    def unfitted(self):
        return DynamicTopK(quantile=0.8, epochs=3)


class TestScores(LearningPrunerContract):
    def unfitted(self):
        return DynamicTopK(quantile=0.8, features="scores", epochs=3)


def mean_k(pruner, seen):
    return pruner.keep(seen.queries, seen.scores).counts.mean()


@pytest.mark.slow
@pytest.mark.parametrize("features", ["compact", "scores"])
def test_needs_fewer_candidates_than_static_for_the_same_coverage_where_scores_tell_how_hard_a_query_is(features):
    seen, unseen = world(1500), world(1500, seed=1)
    dynamic = DynamicTopK(0.8, features).fit([seen])
    static = StaticTopK(0.9).fit([seen])
    assert coverage(dynamic, unseen) >= coverage(static, unseen)
    assert mean_k(dynamic, unseen) < 0.75 * mean_k(static, unseen)


@pytest.mark.slow
def test_predicts_the_quantile_it_is_asked_for():
    seen, unseen = world(2000, easy_share=0.0), world(2000, seed=1, easy_share=0.0)  # ranks from 1 to 200 alike
    dynamic = DynamicTopK(0.5).fit([seen])
    for quantile in (0.25, 0.5, 0.75, 0.9):
        assert coverage(dynamic.with_quantile(quantile), unseen) == pytest.approx(quantile, abs=0.06)


@pytest.mark.parametrize("features", ["compact", "scores"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_higher_quantile_never_keeps_fewer(features, seed):
    pruner = DynamicTopK(0.5, features, epochs=5, seed=seed).fit([a_block()])
    other = a_block(seed=7, count=100)
    quantiles = [1e-9, 0.01, 0.1, 0.5, 0.75, 0.9, 0.99, 1 - 1e-9]
    counts = [pruner.with_quantile(q).keep(other.queries, other.scores).counts for q in quantiles]
    assert all((fewer <= more).all() for fewer, more in zip(counts[:-1], counts[1:], strict=True))


def test_another_quantile_shares_what_was_learnt():
    pruner = DynamicTopK(0.5, epochs=2).fit([a_block()])
    other = pruner.with_quantile(0.9)
    assert (pruner.quantile, other.quantile) == (0.5, 0.9)
    assert other.network_ is pruner.network_


def test_the_seed_decides_and_no_other_randomness_is_touched():
    import torch

    before = torch.random.get_rng_state()
    first, again, other = (DynamicTopK(0.5, epochs=2, seed=seed).fit([a_block()]).tensors() for seed in (3, 3, 4))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first if first[name].shape == other[name].shape)
    assert (torch.random.get_rng_state() == before).all()


def test_compact_features_carry_over_to_a_graph_of_another_size():
    pruner = DynamicTopK(0.9, epochs=2).fit([a_block()])
    larger = a_block(entities=1500)
    assert (pruner.keep(larger.queries, larger.scores).counts >= 1).all()


def test_all_scores_do_not_carry_over():
    pruner = DynamicTopK(0.9, "scores", epochs=2).fit([a_block()])
    larger = a_block(entities=50)
    with pytest.raises(DataError, match="scores for 50 entities, but this pruner was fitted on 40"):
        pruner.keep(larger.queries, larger.scores)


def test_blocks_of_different_graphs_cannot_be_learnt_from_together():
    with pytest.raises(DataError, match="different numbers of entities"):
        DynamicTopK(0.9, "scores").fit([a_block(), a_block(entities=50)])


def test_what_was_learnt_does_not_depend_on_the_scale_of_the_scores_but_for_their_entropy():
    block = a_block(seed=1)
    shifted = ScoredQueries(block.queries, block.scores + np.float32(2))  # a shift changes no entropy either
    pruner = DynamicTopK(0.9, epochs=2).fit([a_block()])
    counts = [pruner.keep(seen.queries, seen.scores).counts for seen in (block, shifted)]
    np.testing.assert_array_equal(*counts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantile": 1.0}, "quantile is 1.0, expected a number above 0 and below 1"),
        ({"features": "all"}, "features is 'all', expected one of: compact, scores"),
        ({"hidden": 0}, "hidden is 0, expected a whole number, at least 1"),
        ({"epochs": 2.5}, "epochs is 2.5, expected a whole number, at least 1"),
    ],
)
def test_a_setting_that_cannot_work_is_an_error(settings, message):
    with pytest.raises(SettingsError, match=message):
        DynamicTopK(**{"quantile": 0.9, **settings})
