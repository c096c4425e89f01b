"""What a training will take: measured on a tiny graph with a tiny language model."""

import time

import pytest

from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.costs import TrainingCost, seconds_for, seconds_per_step
from cascader.models.embeddings import ComplEx
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.models.text.base_model import load_base_model
from cascader.models.text.dry_run import BlankEncoder
from cascader.models.text.texts import GraphTexts
from cascader.runs import MeasuredCosts


@pytest.fixture(scope="module")
def kg():
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefghijkl" for b in "qrstuvwxyz" if a != b]
    return KnowledgeGraph.from_triples(rows[::2], rows[1::4], name="likes")


@pytest.fixture(scope="module")
def settings(tiny_model):
    return {
        "kge": {"dim": 4, "epochs": 8, "valid_every": 2},
        "dual": {"base": tiny_model, "epochs": 6},
        "cross": {"base": tiny_model, "split_layer": 1, "rounds": 4, "queries_per_round": 32, "valid_top_k": 3},
    }


def measured(kg, settings, repeats=1):
    kinds = {"kge": "complex", "dual": "dual", "cross": "cross"}
    return MeasuredCosts(kg, kinds, lambda tier, preset: settings[tier], repeats)


def test_every_part_of_every_tier_has_its_time_and_its_parameters(kg, settings):
    prices = measured(kg, settings)
    costs = {tier: prices.of(tier, "quick") for tier in ("kge", "dual", "cross")}
    for cost in costs.values():
        assert min(cost.preparing, cost.epoch, cost.look) > 0
        assert 0 < cost.least <= cost.most
    kge = ComplEx(**settings["kge"]).fit(kg)
    later = [tier(**settings[tier.name]).fit(kg, earlier=kge) for tier in (DualEncoder, CrossEncoder)]
    assert [cost.parameters for cost in costs.values()] == [model.parameter_count for model in (kge, *later)]
    assert 0 < prices.tuning(["kge"]) < prices.tuning(["kge", "dual", "cross"])


def test_an_embedding_takes_about_what_is_foretold(kg, monkeypatch):
    for clock in ("perf_counter", "monotonic"):  # what others do on this machine meanwhile must not count
        monkeypatch.setattr(time, clock, time.process_time)
    settings = {"kge": {"dim": 64, "epochs": 30, "valid_every": 10, "batch_size": 4, "patience": 100}}
    measured(kg, settings).of("kge", "quick")  # warms up
    foretold = measured(kg, settings).of("kge", "quick").most
    history = ComplEx(**settings["kge"]).fit(kg).history_
    assert foretold / 4 < history.seconds + history.preparing_seconds < foretold * 4  # the machine is shared


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
    prices = measured(bare, settings)
    assert prices.of("kge", "quick").look == 0.0
    assert prices.tuning(["kge"]) == 0.0


@pytest.mark.parametrize("tier", ["kge", "dual", "cross"])
def test_a_graph_without_triples_is_refused(kg, settings, tier):
    empty = KnowledgeGraph("empty", kg.entities, kg.relations, kg.train[:0], kg.valid, kg.test)
    with pytest.raises(DataError, match="empty has no train triples to learn from"):
        measured(empty, settings).of(tier, "quick")


def test_a_training_that_does_not_fit_the_memory_is_refused_before_it_is_tried(kg):
    with pytest.raises(SettingsError, match="GB, and this machine has .* Lower dim or batch_size"):
        MeasuredCosts(kg, {"kge": "rescal"}, lambda tier, preset: {"dim": 100_000}).of("kge", "quick")


def test_a_single_triple_of_valid_is_enough(kg, settings):
    single = KnowledgeGraph("single", kg.entities, kg.relations, kg.train, kg.valid[:1], kg.test)
    prices = measured(single, settings)
    for tier in settings:
        assert prices.of(tier, "quick").look > 0
    assert prices.tuning(list(settings)) > 0


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
