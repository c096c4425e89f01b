import numpy as np
import pytest

from cascader.cascade.pruners import BudgetedTopK, StaticTopK
from cascader.errors import SettingsError
from tests.cascade.pruners.worlds import coverage, world
from tests.contracts import LearningPrunerContract
from tests.contracts.pruner import a_block


class TestBudgetedTopK(LearningPrunerContract):
    def unfitted(self):
        return BudgetedTopK(mean=5)


def mean_k(pruner, seen):
    return pruner.keep(seen.queries, seen.scores).counts.mean()


@pytest.mark.slow
def test_the_mean_is_kept_on_what_it_has_not_seen():
    seen, unseen = world(1500), world(1500, seed=1)
    budgeted = BudgetedTopK(5).fit([seen])
    for mean in (5, 20, 60):
        assert mean_k(budgeted.with_mean(mean), unseen) == pytest.approx(mean, rel=0.2)


@pytest.mark.slow
def test_for_the_same_number_of_candidates_more_golds_survive_than_with_an_equal_number():
    seen, unseen = world(1500), world(1500, seed=1)
    budgeted, static = BudgetedTopK(15).fit([seen]), StaticTopK(0.5).fit([seen])
    budget = mean_k(budgeted, unseen)
    affordable = [q for q in np.linspace(0.01, 0.99, 99) if mean_k(static.with_quantile(q), unseen) <= budget]
    assert coverage(budgeted, unseen) > coverage(static.with_quantile(affordable[-1]), unseen) + 0.05


def test_a_higher_mean_never_keeps_fewer():
    pruner = BudgetedTopK(2).fit([a_block()])
    other = a_block(seed=7, count=100)
    counts = [pruner.with_mean(mean).keep(other.queries, other.scores).counts for mean in (1, 2, 5, 10, 40)]
    assert all((fewer <= more).all() for fewer, more in zip(counts[:-1], counts[1:], strict=True))


@pytest.mark.parametrize("mean", [0, 0.5, -1, float("nan"), float("inf"), "many", True])
def test_a_mean_that_cannot_be_is_an_error(mean):
    with pytest.raises(SettingsError, match="expected a number of candidates, at least 1"):
        BudgetedTopK(mean)
