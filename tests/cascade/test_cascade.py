import numpy as np
import pytest

from cascader.cascade import Alpha, Cascade, blend
from cascader.errors import SettingsError
from cascader.graph import Queries
from cascader.models import Frequency
from cascader.models.embeddings import ComplEx
from tests.contracts import ScorerContract


class TestEnsemble(ScorerContract):
    def make(self, kg):
        second = ComplEx(dim=4, epochs=1).fit(kg)
        return Cascade(Frequency().fit(kg)).then(second, alpha=Alpha(head=0.3, tail=0.6))


def test_an_alpha_of_one_is_the_earlier_tier_and_zero_the_later():
    earlier, later = np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])
    np.testing.assert_array_equal(blend(earlier, later, np.array([1.0])), earlier)
    np.testing.assert_array_equal(blend(earlier, later, np.array([0.0])), later)


def test_each_side_has_its_own_alpha(toy):
    first, second = Frequency().fit(toy), ComplEx(dim=4, epochs=1).fit(toy)
    cascade = Cascade(first).then(second, alpha=Alpha(head=1.0, tail=0.0))
    queries = Queries.from_triples(toy.test)
    expected = np.where(queries.predicts_tail[:, None], second.score_all(queries), first.score_all(queries))
    np.testing.assert_allclose(cascade.score_all(queries), expected)


def test_adding_a_tier_leaves_the_cascade_as_it_was(toy):
    first = Cascade(Frequency().fit(toy))
    first.then(Frequency().fit(toy), alpha=0.5)
    assert first.tiers == ()


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_outside_its_range_is_an_error(alpha, toy):
    with pytest.raises(SettingsError, match="expected a number from 0 to 1"):
        Cascade(Frequency().fit(toy)).then(Frequency().fit(toy), alpha=alpha)
