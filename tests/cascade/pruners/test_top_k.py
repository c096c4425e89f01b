import numpy as np
import pytest

from cascader.cascade.pruners import Capped, ScoredQueries, StaticTopK, TopK
from cascader.errors import SettingsError
from cascader.graph import Queries
from tests.cascade.pruners.worlds import coverage, world
from tests.contracts import LearningPrunerContract, PrunerContract
from tests.contracts.pruner import a_block


class TestTopK(PrunerContract):
    def make(self, blocks):
        return TopK(5)


class TestStaticTopK(LearningPrunerContract):
    def unfitted(self):
        return StaticTopK(quantile=0.8)


class TestCapped(PrunerContract):
    def make(self, seen):
        return Capped(3, StaticTopK(0.9).fit(seen))


def golds_at(ranks, predicts_tail):
    """Queries whose golds stand at these ranks among 100 entities."""
    count = len(ranks)
    scores = np.tile(-np.arange(100.0, dtype=np.float32), (count, 1))
    queries = Queries(np.arange(count), np.zeros(count, int), np.array(predicts_tail), golds=np.array(ranks) - 1)
    return ScoredQueries(queries, scores)


def test_k_is_the_quantile_of_the_ranks_of_each_side():
    tails = golds_at([1, 2, 3, 4, 5, 6, 7, 8, 9, 50], [True] * 10)
    heads = golds_at([10, 20, 30, 40], [False] * 4)
    pruner = StaticTopK(0.9).fit([tails, heads])
    assert (pruner.k("tail"), pruner.k("head")) == (9, 40)
    halved = pruner.with_quantile(0.5)
    assert (halved.k("tail"), halved.k("head")) == (5, 20)


def test_a_side_that_was_never_asked_for_takes_the_other_ones_k():
    pruner = StaticTopK(0.5).fit([golds_at([1, 7, 9], [True] * 3)])
    assert pruner.k("head") == pruner.k("tail") == 7


def test_a_rank_between_two_places_is_rounded_up():
    queries = Queries(np.array([0]), np.array([0]), np.array([True]), golds=np.array([0]))
    seen = ScoredQueries(queries, np.array([[1.0, 1.0, 0.0]]))
    assert seen.ranks.tolist() == [1.5]
    assert StaticTopK(0.5).fit([seen]).k("tail") == 2


def test_the_golds_seen_survive_in_the_share_that_was_asked_for():
    seen = world(300)
    for quantile in (0.3, 0.75, 0.95):
        assert coverage(StaticTopK(quantile).fit([seen]), seen) >= quantile


@pytest.mark.parametrize("quantile", [0, 1, -0.1, 1.5, float("nan"), "0.9", None])
def test_a_quantile_outside_its_range_is_an_error(quantile):
    with pytest.raises(SettingsError, match="quantile is .*, expected a number above 0 and below 1, such as 0.9"):
        StaticTopK(quantile)


@pytest.mark.parametrize("k", [0, -3, 2.5, True])
def test_no_fewer_than_one_candidate_can_be_kept(k):
    with pytest.raises(SettingsError, match="expected a whole number, at least 1 candidate"):
        TopK(k)


def test_what_is_fewer_stays_fewer():
    block = a_block()
    assert Capped(9, TopK(4)).keep(block.queries, block.scores).counts.max() == 4
    assert Capped(2, TopK(4)).keep(block.queries, block.scores).counts.max() == 2


def test_a_limit_of_none_is_an_error():
    with pytest.raises(SettingsError, match="k is 0, expected at least 1 candidate"):
        Capped(0, TopK(4))
