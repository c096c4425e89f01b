import numpy as np
import pytest

from cascader.cascade import Alpha, Cascade, Deadline, MeteredCascade, TopK, blend
from cascader.errors import DataError, SettingsError
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


def test_a_cascade_whose_last_tier_is_pruned_asks_it_about_the_best_of_the_others(toy):
    frequency, kge = Frequency().fit(toy), ComplEx(dim=4, epochs=1).fit(toy)
    cascade = Cascade(kge).then(frequency, alpha=0.5).then(kge, alpha=0.5)
    *_, others, last = cascade.pruned_last(TopK(2)).steps(Queries.from_triples(toy.test))
    assert others.candidates is None
    assert last.candidates.counts.tolist() == [2] * len(others.blended)
    for row, ids in enumerate(last.candidates.ids.reshape(-1, 2)):
        assert others.blended[row, ids].min() >= np.delete(others.blended[row], ids).max()


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_outside_its_range_is_an_error(alpha, toy):
    with pytest.raises(SettingsError, match="expected a number from 0 to 1"):
        Cascade(Frequency().fit(toy)).then(Frequency().fit(toy), alpha=alpha)


class TestPruned(ScorerContract):
    def make(self, kg):
        second = ComplEx(dim=4, epochs=1).fit(kg)
        return Cascade(Frequency().fit(kg)).then(second, alpha=0.3, keep=TopK(2))


class Ticking:
    """A clock that only moves when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Slow:
    """A scorer that takes a second for every call, by a clock that only it moves."""

    def __init__(self, scorer, clock=None):
        self.scorer, self.clock, self.calls = scorer, clock, 0

    def score(self, queries, candidates):
        if self.clock:
            self.clock.now += 1
        self.calls += len(candidates.ids)
        return self.scorer.score(queries, candidates)


class Nan:
    def score_all(self, queries):
        return np.full((len(queries), 8), np.nan, np.float32)


def ranked(scores):
    return np.argsort(-scores, axis=1, kind="stable")


def test_as_many_as_there_are_is_all_of_them(toy):
    first, second = Frequency().fit(toy), ComplEx(dim=4, epochs=1).fit(toy)
    queries = Queries.from_triples(toy.test)
    pruned = Cascade(first).then(second, alpha=0.4, keep=TopK(len(toy.entities)))
    np.testing.assert_allclose(
        pruned.score_all(queries), Cascade(first).then(second, alpha=0.4).score_all(queries), rtol=1e-5, atol=1e-6
    )


def test_the_later_tier_is_asked_about_survivors_only_and_the_usage_says_so(toy):
    first, second = Frequency().fit(toy), Slow(Frequency().fit(toy))
    metered = MeteredCascade(Cascade(first).then(second, alpha=0.4, keep=TopK(2), name="second"))
    queries = Queries.from_triples(toy.test).with_known(toy.known_before("test"))
    metered.score_all(queries)
    assert second.calls == metered.usage.tiers["second"].calls <= 2 * len(queries)
    assert metered.usage.tiers["second"].queries == len(queries)


def test_what_is_known_takes_no_place(toy):
    first = Frequency().fit(toy)
    cascade = Cascade(first).then(first, alpha=0.5, keep=TopK(1))
    for known, expected in ((None, "headache"), (toy.known(), "aspirin")):
        *_, last = cascade.steps(toy.query("aspirin", "treats").with_known(known))
        assert [toy.entities[entity].id for entity in last.candidates[0]] == [expected]


def test_a_tier_without_a_weight_or_a_pruner_says_how_it_is_tuned(toy):
    first, query = Frequency().fit(toy), toy.query("aspirin", "treats")
    with pytest.raises(SettingsError, match=r"the tier frequency has no weight yet.*tune\(cascade, kg\).best"):
        Cascade(first).then(first).score_all(query)
    reading = Slow(first)
    reading.reads_pairs = True
    with pytest.raises(SettingsError, match=r"the tier slow reads pairs.*keep=TopK\(50\)"):
        Cascade(first).then(reading, alpha=0.5).score_all(query)


def test_when_the_time_is_up_the_ranking_is_complete_and_marked(toy):
    clock = Ticking()
    first, second = Frequency().fit(toy), Slow(ComplEx(dim=4, epochs=1).fit(toy), clock)
    metered = MeteredCascade(Cascade(first).then(second, alpha=0.0, keep=TopK(8)), Deadline(1, clock))
    clock.now = 2
    queries = Queries.from_triples(toy.test)
    np.testing.assert_array_equal(metered.score_all(queries), first.score_all(queries))
    assert second.calls == 0
    assert metered.usage.tiers["slow"].cut_short == len(queries)


@pytest.mark.parametrize("ranks_read", [1, 3])
def test_in_the_middle_the_best_have_been_read(toy, monkeypatch, ranks_read):
    monkeypatch.setattr("cascader.cascade.cascade._RANKS_AT_ONCE", 1)
    clock = Ticking()
    first, second = Frequency().fit(toy), Slow(ComplEx(dim=4, epochs=1).fit(toy), clock)
    queries = Queries.from_triples(toy.test)
    *_, last = Cascade(first).then(second, alpha=0.0, keep=TopK(8)).steps(queries, Deadline(ranks_read, clock))
    assert not last.complete
    assert last.candidates.counts.tolist() == [ranks_read] * len(queries)
    np.testing.assert_array_equal(last.candidates.ids, ranked(first.score_all(queries))[:, :ranks_read].ravel())


def test_with_time_enough_all_is_read(toy):
    clock = Ticking()
    first, second = Frequency().fit(toy), Slow(ComplEx(dim=4, epochs=1).fit(toy), clock)
    queries = Queries.from_triples(toy.test)
    *_, last = Cascade(first).then(second, alpha=0.0, keep=TopK(8)).steps(queries, Deadline(100, clock))
    assert last.complete
    assert second.calls == 8 * len(queries)


def test_nan_from_a_tier_is_named(toy):
    with pytest.raises(DataError, match=r"the tier nan returned NaN for 48 of 48 scores"):
        Cascade(Frequency().fit(toy)).then(Nan(), alpha=0.5).score_all(Queries.from_triples(toy.test))


def test_scores_of_a_wrong_shape_are_named(toy):
    first = Frequency().fit(toy)

    class Short:
        def score_all(self, queries):
            return np.zeros((len(queries), 3), np.float32)

    with pytest.raises(DataError, match=r"the tier short returned scores of shape \(6, 3\), expected \(6, 8\)"):
        Cascade(first).then(Short(), alpha=0.5).score_all(Queries.from_triples(toy.test))


def test_no_time_at_all_is_an_error():
    with pytest.raises(SettingsError, match="leaves no time"):
        Deadline(0)
