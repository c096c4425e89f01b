import numpy as np
import pytest

from cascader.cascade.pruners import ConformalTopK, ScoredQueries, score_in_blocks
from cascader.errors import SettingsError
from cascader.graph import Queries
from cascader.models import Frequency
from tests.cascade.pruners.worlds import coverage, world
from tests.contracts import LearningPrunerContract
from tests.contracts.pruner import a_block
from tests.evaluation.test_evaluate import random_graph


class TestConformalTopK(LearningPrunerContract):
    def unfitted(self):
        return ConformalTopK(coverage=0.7)


class TestConformalTopKOfTooFew(LearningPrunerContract):
    def unfitted(self):
        return ConformalTopK(coverage=0.999)


def part(seen, rows):
    return ScoredQueries(seen.queries[rows], seen.scores[rows])


@pytest.fixture(scope="module")
def fitted():
    return [ConformalTopK(0.5, seed=seed).fit([world(160, seed=seed, easy_share=0.5)]) for seed in range(12)]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.7, 0.9])
def test_on_average_the_coverage_is_neither_missed_nor_much_exceeded(share, fitted):
    reached = [
        coverage(pruner.with_coverage(share), world(1000, seed=100 + seed, easy_share=0.5))
        for seed, pruner in enumerate(fitted)
    ]
    # About 40 calibrate each side: no more than 1/41 too much is expected; 12 draws deviate by about 0.02 together.
    assert share - 0.04 <= np.mean(reached) <= share + 1 / 41 + 0.04


def test_the_coverage_holds_where_every_score_ties():
    """The mean rank of a tie would promise survivors that the order of ids does not let through."""
    rng = np.random.default_rng(0)
    anchors, golds, is_tail = rng.integers(10**6, size=400), rng.integers(30, size=400), rng.random(400) < 0.5
    queries = Queries(anchors, np.zeros(400, int), is_tail, golds=golds)
    tied = ScoredQueries(queries, np.zeros((400, 30), dtype=np.float32))
    pruner = ConformalTopK(0.8).fit([part(tied, slice(0, 200))])
    assert coverage(pruner, part(tied, slice(200, 400))) == 1.0


def test_the_coverage_holds_on_each_side():
    """Heads are hard here and tails easy: one factor for both would give the heads too little."""
    easy, hard = world(600, easy_share=1.0), world(600, seed=1, easy_share=0.2)
    both = np.r_[easy.scores, hard.scores], np.r_[easy.queries.golds, hard.queries.golds]
    anchors, is_tail = np.arange(1200), np.arange(1200) < 600
    seen = ScoredQueries(Queries(anchors, np.zeros(1200, int), is_tail, golds=both[1]), both[0])
    learnt, rest = np.arange(1200) % 2 == 0, np.arange(1200) % 2 == 1
    pruner = ConformalTopK(0.8).fit([part(seen, learnt)])
    for side in (is_tail, ~is_tail):
        assert coverage(pruner, part(seen, rest & side)) >= 0.8 - 0.08


def test_too_few_queries_keep_everything_and_say_so():
    kg = random_graph()
    seen = list(
        score_in_blocks(Frequency().fit(kg), Queries.from_triples(kg.valid[:3]).with_known(kg.known_before("valid")))
    )
    pruner = ConformalTopK(0.9).fit(seen)
    assert pruner.uncovered_sides == ("head", "tail")
    for block in seen:
        alive = (block.scores > -np.inf).sum(axis=1)
        np.testing.assert_array_equal(pruner.keep(block.queries, block.scores).counts, alive)


def test_enough_queries_keep_less_than_everything():
    assert ConformalTopK(0.7).fit([a_block(count=200)]).uncovered_sides == ()


def test_golds_that_are_masked_count_as_lost():
    block = a_block(count=200)
    scores = block.scores.copy()
    scores[np.arange(100), block.queries.golds[:100]] = -np.inf  # half of them: no factor can save 0.9
    assert ConformalTopK(0.9).fit([ScoredQueries(block.queries, scores)]).uncovered_sides == ("head", "tail")


@pytest.mark.parametrize("share", [0, 1, 2.0, float("nan")])
def test_a_coverage_outside_its_range_is_an_error(share):
    with pytest.raises(SettingsError, match="coverage is .*, expected a number above 0 and below 1"):
        ConformalTopK(share)
