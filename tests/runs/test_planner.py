"""Which tiers and presets a budget has time for."""

import pytest

from cascader.models.costs import TrainingCost
from cascader.runs import PRESETS, choose, shares

TIERS = ("kge", "dual", "cross")


class Listed:
    """Prices from a table: epochs of one second, ten seconds to prepare for tiers that read, a second to tune each."""

    EPOCHS = {"quick": 10, "balanced": 50, "best": 100}

    def __init__(self):
        self.asked = []

    def of(self, tier, preset):
        self.asked.append((tier, preset))
        return TrainingCost(0.0 if tier == "kge" else 10.0, 1.0, 0.0, self.EPOCHS[preset], valid_every=2, parameters=1)

    def floor(self, tier, preset, than):
        return float(self.EPOCHS[preset])

    def tuning(self, tiers):
        return float(len(tiers))


def test_with_time_enough_all_tiers_get_the_best_preset():
    assert choose(TIERS, PRESETS, Listed(), 1000.0).presets == dict.fromkeys(TIERS, "best")


def test_better_presets_go_to_the_first_tiers_while_all_epochs_fit():
    # quick: 10 + 20 + 20 and 3 to tune; 40 more make a tier balanced, 50 more make that one best.
    chosen = [list(choose(TIERS, PRESETS, Listed(), seconds).presets.values()) for seconds in (53, 93, 133, 173, 223)]
    assert chosen == [
        ["quick", "quick", "quick"],
        ["balanced", "quick", "quick"],
        ["balanced", "balanced", "quick"],
        ["balanced", "balanced", "balanced"],
        ["best", "balanced", "balanced"],
    ]


def test_a_tier_that_does_not_get_to_its_first_look_is_left_out_with_those_behind_it():
    choice = choose(TIERS, PRESETS, Listed(), 20.0)  # 2 + 12 and 2 to tune; with cross, 12 and 1 more
    assert choice.presets == {"kge": "quick", "dual": "quick"}
    assert choice.left_out == {"cross": 29.0}
    assert choose(TIERS, PRESETS, Listed(), 10.0).left_out == {"dual": 16.0}


def test_the_first_tier_is_always_there():
    assert choose(TIERS, PRESETS, Listed(), 0.0).presets == {"kge": "quick"}


def test_tiers_that_are_trained_already_may_stay_alone():
    choice = choose(["dual", "cross"], PRESETS, Listed(), 3.0, trained=["kge"])
    assert (choice.presets, list(choice.left_out)) == ({}, ["dual"])


def test_nothing_is_measured_that_is_known_not_to_fit():
    prices = Listed()
    choose(TIERS, PRESETS, prices, 53.0)
    assert {preset for _, preset in prices.asked} == {"quick"}


class TestShares:
    def cost(self, least, most):
        return TrainingCost(0.0, 1.0, 0.0, epochs=most, valid_every=least, parameters=1)

    def test_each_tier_has_its_least_and_of_the_rest_as_its_epochs_go(self):
        found = shares({"kge": self.cost(10, 30), "dual": self.cost(20, 80)}, 70.0)
        assert found == {"kge": 20.0, "dual": 50.0}

    def test_all_of_the_time_is_shared_out(self):
        costs = {"kge": self.cost(10, 30), "dual": self.cost(20, 80)}
        for seconds in (5.0, 30.0, 110.0, 1000.0):
            assert sum(shares(costs, seconds).values()) == pytest.approx(seconds)

    def test_tiers_of_a_single_look_share_alike(self):
        assert shares({"kge": self.cost(10, 10), "dual": self.cost(10, 10)}, 40.0) == {"kge": 20.0, "dual": 20.0}
