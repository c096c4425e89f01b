"""Tuning is a replay: what it chooses, what it costs, and what survives being kept."""

import numpy as np
import pytest

from cascader.cascade import Cascade, TopK
from cascader.errors import DataError, SettingsError
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, KnowledgeGraph, Queries
from cascader.models import Frequency
from cascader.tuning import Budget, Plan, ReadingSpeed, load_tuned, save_tuned, tune
from cascader.tuning.search import split_valid
from tests.evaluation.test_evaluate import random_graph


class Noisy:
    """Knows the answers but for a noise that every question has of its own."""

    def __init__(self, kg, noise, seed):
        self.known = kg.known()
        questions = 2 * len(kg.relations) * len(kg.entities)
        shape = questions, len(kg.entities)
        self.noise = noise * np.random.default_rng(seed).normal(size=shape).astype(np.float32)

    def score_all(self, queries):
        answers = self.known.of(queries)
        scores = self.noise[queries.keys(self.known.entity_count, self.known.relation_count)]
        scores[answers.rows, answers.ids] += 1
        return scores


class Reader:
    """A scorer of pairs that counts each of them, and knows how long they are."""

    name = "reader"

    def __init__(self, scorer):
        self.scorer, self.seen = scorer, []

    def score(self, queries, candidates):
        self.seen += zip(
            queries.anchors[candidates.rows],
            queries.relations[candidates.rows],
            queries.predicts_tail[candidates.rows],
            candidates.ids,
            strict=True,
        )
        return self.scorer.score_all(queries)[candidates.rows, candidates.ids]

    def token_counts(self, queries, candidates):
        return 10 + candidates.ids % 5


@pytest.fixture(scope="module")
def kg():
    return random_graph(seed=1, entities=60, triples=900)


@pytest.fixture
def cascade(kg):
    """A reader of its own for each test: it counts what it reads."""
    return untuned(kg)


@pytest.fixture(scope="module")
def tuned(kg):
    """Tuned once: what it found is only looked at."""
    return tune(untuned(kg), kg, read_top=20)


def untuned(kg):
    first, second, third = Frequency().fit(kg), Noisy(kg, 1.0, seed=1), Reader(Noisy(kg, 0.5, seed=2))
    return Cascade(first).then(second, alpha=0.5, name="second").then(third, alpha=0.5, keep=TopK(1))


def test_tiers_are_added_in_order_and_pairs_are_read_after_the_best_sum(tuned):
    tiers = [trial.tiers for trial in tuned.trials]
    assert tiers[0] == ("frequency",)
    assert set(tiers[1:]) == {("frequency", "second"), ("frequency", "second", "reader")}
    kinds = {
        trial.as_dict()["later"][-1]["keep"].get("of", {"pruner": "top_k"})["pruner"] for trial in tuned.trials[2:]
    }
    assert kinds == {"top_k", "static", "dynamic", "conformal", "budgeted"}


def test_the_best_has_the_highest_mrr_on_valid_and_its_figure_is_true(tuned, kg):
    best = max(tuned.trials, key=lambda trial: trial.mrr)
    assert tuned.plan(Budget(), 1).trial.mrr == best.mrr
    queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
    figure = mean_reciprocal_rank(best.cascade, queries, kg.known())
    assert figure == pytest.approx(best.mrr, abs=1e-6)


def test_the_coverage_is_the_share_of_golds_that_are_read_in_the_half_that_no_pruner_has_seen(tuned, kg):
    _, checking = split_valid(kg, seed=0)
    queries = Queries.from_triples(checking)
    for trial in tuned.trials:
        if "reader" not in trial.tiers:
            assert trial.coverage is None
            continue
        *_, last = trial.cascade.steps(queries.with_known(kg.known_before("valid")))
        read = [gold in last.candidates[row] for row, gold in enumerate(queries.golds)]
        assert trial.coverage == pytest.approx(np.mean(read))


def test_no_pair_of_valid_is_read_twice_but_to_see_how_fast_it_is(cascade, kg, monkeypatch):
    monkeypatch.setattr(ReadingSpeed, "measure", lambda *_: ReadingSpeed(1.0, 0.0))
    tune(cascade, kg, read_top=20)
    seen = cascade.tiers[-1].scorer.seen
    assert len(seen) == len(set(seen)) > 0


def test_nothing_beyond_what_was_read_is_ever_kept(tuned):
    assert max(trial.pairs_per_query for trial in tuned.trials) <= 20


def test_a_larger_budget_never_gives_a_worse_plan(tuned):
    plans = [tuned.plan(Budget(pairs=pairs), 100) for pairs in (0, 200, 500, 1000, 2000)]
    figures = [plan.trial.mrr for plan in plans]
    assert figures == sorted(figures)
    assert all(plan.pairs <= pairs for plan, pairs in zip(plans, (0, 200, 500, 1000, 2000), strict=True))


def test_a_budget_too_small_for_anything_leaves_the_first_tier(tuned):
    plan = tuned.plan(Budget(seconds=0), 1000)
    assert plan.trial.tiers == ("frequency",)
    assert isinstance(plan, Plan)


def test_kept_and_loaded_it_answers_alike(tuned, cascade, kg, tmp_path):
    save_tuned(tuned, tmp_path, {"kge": "1"})
    scorers = {"frequency": cascade.first, **{tier.name: tier.scorer for tier in cascade.tiers}}
    loaded = load_tuned(tmp_path, {"kge": "1"}, scorers)
    queries = Queries.from_triples(kg.test)
    for before, after in zip(tuned.trials, loaded.trials, strict=True):
        assert after.tiers == before.tiers
        np.testing.assert_array_equal(before.cascade.score_all(queries), after.cascade.score_all(queries))


def test_what_was_tuned_for_other_models_is_not_used(tuned, cascade, tmp_path):
    save_tuned(tuned, tmp_path, {"kge": "1"})
    assert load_tuned(tmp_path, {"kge": "2"}, {"frequency": cascade.first}) is None
    assert load_tuned(tmp_path / "elsewhere", {"kge": "1"}, {"frequency": cascade.first}) is None


def test_another_format_is_named(tuned, cascade, tmp_path):
    save_tuned(tuned, tmp_path, {})
    path = tmp_path / "tuning.json"
    path.write_text(path.read_text().replace('"format": 4', '"format": 9'))
    with pytest.raises(DataError, match="has format 9, expected 4. .* Delete it to tune again"):
        load_tuned(tmp_path, {}, {"frequency": cascade.first})


def test_a_kill_between_its_two_files_leads_to_tuning_again(tuned, cascade, tmp_path, caplog):
    save_tuned(tuned, tmp_path, {"kge": "1"})
    (tmp_path / "tuning.safetensors").write_bytes(b"of a later tuning, whose tuning.json was not written")
    assert load_tuned(tmp_path, {"kge": "1"}, {"frequency": cascade.first}) is None
    assert "tuning.safetensors does not belong to" in caplog.text


def test_a_tier_whose_gain_may_be_chance_is_tried_and_not_chosen(kg):
    noise = Noisy(kg, 1.0, seed=3)
    noise.known = kg.known(())
    tuned = tune(Cascade(Noisy(kg, 1.0, seed=1), name="first").then(noise, name="noise"), kg)
    first, second = tuned.trials
    assert "noise" in second.tiers
    assert not second.earns_its_cost
    assert tuned.best_trial == first


def test_three_valid_triples_are_enough(kg, cascade):
    small = KnowledgeGraph("small", kg.entities, kg.relations, kg.train, kg.valid[:3], kg.test)
    assert tune(cascade, small, read_top=5).best.score_all(Queries.from_triples(kg.test)).shape[1] == 60


def test_without_valid_there_is_nothing_to_tune_on(kg, cascade):
    none = KnowledgeGraph("none", kg.entities, kg.relations, kg.train, kg.valid[:0], kg.test)
    with pytest.raises(DataError, match="has no valid triples to tune on"):
        tune(cascade, none)
    with pytest.raises(SettingsError, match="read_top is 0"):
        tune(cascade, kg, read_top=0)


@pytest.mark.parametrize("settings", [{"seconds": -1}, {"pairs": float("nan")}])
def test_an_impossible_budget_is_an_error(settings):
    with pytest.raises(SettingsError, match="expected 0 or more"):
        Budget(**settings)


def test_reading_speed_tells_short_pairs_from_long_ones(kg, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    class Slow(Reader):
        """Half a second for a pair, and a tenth for each of its tokens."""

        def token_counts(self, queries, candidates):
            return np.where(candidates.ids < 30, 10, 1000)

        def score(self, queries, candidates):
            clock[0] += 0.5 * len(candidates.ids) + 0.1 * self.token_counts(queries, candidates).sum()
            return np.zeros(len(candidates.ids), np.float32)

    queries = Queries.from_triples(kg.valid)[:10]
    everyone = Candidates.from_lists([list(range(60))] * 10)
    speed = ReadingSpeed.measure(Slow(None), queries, everyone)
    assert (speed.seconds_per_pair, speed.seconds_per_token) == pytest.approx((0.5, 0.1))
    assert speed.seconds(pairs=100, tokens=1_000) == pytest.approx(150)


def test_pairs_that_are_all_alike_leave_the_length_out(kg, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    class Steady(Reader):
        def token_counts(self, queries, candidates):
            return np.full(len(candidates.ids), 7)

        def score(self, queries, candidates):
            clock[0] += 0.5 * len(candidates.ids)
            return np.zeros(len(candidates.ids), np.float32)

    everyone = Candidates.from_lists([list(range(60))] * 10)
    speed = ReadingSpeed.measure(Steady(None), Queries.from_triples(kg.valid)[:10], everyone)
    assert (speed.seconds_per_pair, speed.seconds_per_token) == pytest.approx((0.5, 0.0))


@pytest.fixture(scope="module")
def as_in_the_paper(kg):
    return tune(untuned(kg), kg, read_top=20, space="paper")


class TestTheSpaceOfThePaper:
    """`tune(..., space="paper")`: what Section 4.3 searches."""

    def test_any_choice_of_later_tiers_is_tried_with_static_and_dynamic_pruning_of_four_quantiles(
        self, as_in_the_paper
    ):
        sums, both = ("frequency",), ("frequency", "second")
        rerankings = [(*sums, "reader"), (*both, "reader")]
        tried = [trial.tiers for trial in as_in_the_paper.trials]
        assert tried == [sums, both, *[rerankings[0]] * 8, *[rerankings[1]] * 8]
        pruners = {trial.cascade.tiers[-1].keep.pruner.kind for trial in as_in_the_paper.trials[2:]}
        assert pruners == {"static", "dynamic"}

    def test_each_tier_has_one_alpha_and_pruned_candidates_keep_their_scores(self, as_in_the_paper):
        later = [tier for trial in as_in_the_paper.trials for tier in trial.cascade.tiers]
        assert all(tier.weight.head == tier.weight.tail and not tier.weight.relations for tier in later)
        reading = [tier for tier in later if tier.keep is not None]
        assert {(tier.fusion.scale, tier.fusion.pruned) for tier in reading} == {("raw", "unchanged")}

    def test_the_best_on_valid_wins_without_a_proof(self, as_in_the_paper):
        assert as_in_the_paper.best_trial.mrr == max(trial.mrr for trial in as_in_the_paper.trials)
