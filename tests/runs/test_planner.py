"""Which tiers and presets a budget has time for, and what a training will take: measured on a tiny graph."""

import time
from functools import partial

import pytest
import torch

from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.embeddings import RESCAL, ComplEx
from cascader.models.settings import PRESETS
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.models.text.base_model import load_base_model
from cascader.models.text.dry_run import BlankEncoder
from cascader.models.text.text_model import GraphTexts
from cascader.models.training import TrainingCost, seconds_for, seconds_per_step, train
from cascader.runs.planner import MeasuredCosts, choose, split_budget

TIERS = ("kge", "dual", "cross")


class Listed:
    """Costs from a table: epochs of one second, ten seconds to prepare for tiers that read, a second to tune each."""

    EPOCHS = {"quick": 10, "balanced": 50, "best": 100}

    def __init__(self):
        self.asked = []

    def of(self, tier, preset):
        self.asked.append((tier, preset))
        return TrainingCost(0.0 if tier == "kge" else 10.0, 1.0, 0.0, self.EPOCHS[preset], valid_every=2, parameters=1)

    def lower_bound(self, tier, preset, than):
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


def test_a_tier_that_does_not_get_to_its_first_look_is_skipped_with_those_behind_it():
    choice = choose(TIERS, PRESETS, Listed(), 20.0)  # 2 + 12 and 2 to tune; with cross, 12 and 1 more
    assert choice.presets == {"kge": "quick", "dual": "quick"}
    assert choice.skipped == {"cross": 29.0}
    assert choose(TIERS, PRESETS, Listed(), 10.0).skipped == {"dual": 16.0}


def test_the_first_tier_is_always_there():
    assert choose(TIERS, PRESETS, Listed(), 0.0).presets == {"kge": "quick"}


def test_tiers_that_are_trained_already_may_stay_alone():
    choice = choose(["dual", "cross"], PRESETS, Listed(), 3.0, trained=["kge"])
    assert (choice.presets, list(choice.skipped)) == ({}, ["dual"])


def test_nothing_is_measured_that_is_known_not_to_fit():
    costs = Listed()
    choose(TIERS, PRESETS, costs, 53.0)
    assert {preset for _, preset in costs.asked} == {"quick"}


class TestShares:
    def cost(self, least, most):
        return TrainingCost(0.0, 1.0, 0.0, epochs=most, valid_every=least, parameters=1)

    def test_each_tier_has_its_least_and_of_the_rest_as_its_epochs_go(self):
        found = split_budget({"kge": self.cost(10, 30), "dual": self.cost(20, 80)}, 70.0)
        assert found == {"kge": 20.0, "dual": 50.0}

    def test_all_of_the_time_is_shared_out(self):
        costs = {"kge": self.cost(10, 30), "dual": self.cost(20, 80)}
        for seconds in (5.0, 30.0, 110.0, 1000.0):
            assert sum(split_budget(costs, seconds).values()) == pytest.approx(seconds)

    def test_tiers_of_a_single_look_share_alike(self):
        assert split_budget({"kge": self.cost(10, 10), "dual": self.cost(10, 10)}, 40.0) == {"kge": 20.0, "dual": 20.0}


@pytest.fixture(scope="module")
def kg():
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefghijkl" for b in "qrstuvwxyz" if a != b]
    return KnowledgeGraph.from_triples(rows[::2], rows[1::4], name="likes")


@pytest.fixture(scope="module")
def settings(tiny_model):
    return {
        "kge": {"dim": 4, "epochs": 8, "valid_every": 2},
        "dual": {"base": tiny_model, "epochs": 6},
        "cross": {"base": tiny_model, "split_layer": 0, "rounds": 4, "queries_per_round": 32, "valid_top_k": 3},
    }


def measured(kg, settings, repeats=1):
    kinds = {"kge": ComplEx, "dual": DualEncoder, "cross": CrossEncoder}
    return MeasuredCosts(kg, lambda tier, preset: kinds[tier](**settings[tier]), repeats)


def test_every_part_of_every_tier_has_its_time_and_its_parameters(kg, settings):
    costs = measured(kg, settings)
    found = {tier: costs.of(tier, "quick") for tier in ("kge", "dual", "cross")}
    for cost in found.values():
        assert min(cost.preparing, cost.epoch, cost.look) > 0
        assert 0 < cost.least <= cost.most
    kge = ComplEx(**settings["kge"]).fit(kg)
    later = [tier(**settings[tier.name]).fit(kg, earlier=kge) for tier in (DualEncoder, CrossEncoder)]
    assert [cost.parameters for cost in found.values()] == [model.parameter_count for model in (kge, *later)]
    assert 0 < costs.tuning(["kge"]) < costs.tuning(["kge", "dual", "cross"])


def test_an_embedding_takes_about_what_is_estimated(kg, monkeypatch):
    """By a clock that only training moves: what others do on this machine meanwhile must not count."""
    seconds = 0.0
    step = torch.optim.Adagrad.step

    def timed_step(*arguments, **options):
        nonlocal seconds
        seconds += 0.01
        return step(*arguments, **options)

    monkeypatch.setattr(torch.optim.Adagrad, "step", timed_step)
    for clock in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, clock, lambda: seconds)
    monkeypatch.setattr("cascader.models.model.train", partial(train, clock=lambda: seconds))
    settings = {"kge": {"dim": 64, "epochs": 30, "valid_every": 10, "batch_size": 4, "patience": 100}}
    estimated = measured(kg, settings).of("kge", "quick").most
    history = ComplEx(**settings["kge"]).fit(kg).history_
    assert history.seconds + history.preparing_seconds == pytest.approx(estimated, rel=0.05)
    assert estimated > 0


def test_texts_whose_vectors_are_kept_take_no_time(kg, settings):
    def reading_seconds():
        base = load_base_model(settings["dual"]["base"])
        return BlankEncoder(base, GraphTexts.of(kg, base, 64), trainable_layers=0).reading_seconds

    assert reading_seconds() > 0
    DualEncoder(**settings["dual"]).fit(kg)
    assert reading_seconds() == 0


def test_trials_multiply_the_first_tier(kg, settings):
    assert measured(kg, settings, repeats=5).of("kge", "quick").epochs == 40


def test_a_graph_without_valid_is_not_tuned(kg, settings):
    bare = KnowledgeGraph("bare", kg.entities, kg.relations, kg.train, kg.valid[:0], kg.test)
    costs = measured(bare, settings)
    assert costs.of("kge", "quick").look == 0.0
    assert costs.tuning(["kge"]) == 0.0


@pytest.mark.parametrize("tier", ["kge", "dual", "cross"])
def test_a_graph_without_triples_is_refused(kg, settings, tier):
    empty = KnowledgeGraph("empty", kg.entities, kg.relations, kg.train[:0], kg.valid, kg.test)
    with pytest.raises(DataError, match="empty has no train triples to learn from"):
        measured(empty, settings).of(tier, "quick")


def test_a_training_that_does_not_fit_the_memory_is_refused_before_it_is_tried(kg):
    with pytest.raises(SettingsError, match="GB, and this machine has .* Lower dim or batch_size"):
        MeasuredCosts(kg, lambda tier, preset: RESCAL(dim=100_000)).of("kge", "quick")


def test_a_single_triple_of_valid_is_enough(kg, settings):
    single = KnowledgeGraph("single", kg.entities, kg.relations, kg.train, kg.valid[:1], kg.test)
    costs = measured(single, settings)
    for tier in settings:
        assert costs.of(tier, "quick").look > 0
    assert costs.tuning(list(settings)) > 0


def test_a_cost_counts_epochs_and_looks():
    cost = TrainingCost(preparing=5.0, epoch=2.0, look=1.0, epochs=7, valid_every=3, parameters=0)
    assert (cost.least, cost.most) == (5 + 6 + 1, 5 + 14 + 3)


def test_a_line_through_two_sizes_is_followed(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def work(count):
        clock[0] += 3 + count / 10

    assert seconds_for(work, 1000) == pytest.approx(103)
    assert seconds_for(work, 64) == pytest.approx(9.4)
    assert seconds_for(work, 0) == 0


def test_a_count_that_is_no_larger_than_the_sizes_is_timed_as_it_is_and_once(monkeypatch):
    clock, done = [0.0], []
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def work(count):
        done.append(count)
        clock[0] += 3 + count / 10

    assert seconds_for(work, 20) == pytest.approx(5)
    assert done == [2, 20]  # the first warms up


def test_the_first_step_only_warms_up(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def steps(durations):
        for seconds in durations:
            clock[0] += seconds
            yield None

    assert seconds_per_step(steps([5.0, 0.1, 0.3])) == pytest.approx(0.2)
    assert seconds_per_step(steps([5.0])) == pytest.approx(5.0)
    assert seconds_per_step(steps([])) == 0.0
