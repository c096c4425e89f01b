import pytest

from cascader.cascade.pruners import Capped, StaticTopK, TopK
from cascader.errors import SettingsError
from tests.contracts import PrunerContract
from tests.contracts.pruner import a_block


class TestCapped(PrunerContract):
    def make(self, seen):
        return Capped(3, StaticTopK(0.9).fit(seen))


def test_what_is_fewer_stays_fewer():
    block = a_block()
    assert Capped(9, TopK(4)).keep(block.queries, block.scores).counts.max() == 4
    assert Capped(2, TopK(4)).keep(block.queries, block.scores).counts.max() == 2


def test_a_limit_of_none_is_an_error():
    with pytest.raises(SettingsError, match="k is 0, expected at least 1 candidate"):
        Capped(0, TopK(4))
