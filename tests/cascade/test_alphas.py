from typing import get_args

import numpy as np
import pytest

from cascader.cascade import Alpha, Cascade, Fusion, Scale, TopK, mask_known, rerank
from cascader.cascade.alphas import ALPHAS, TunedBlend, best_reranking, best_sum, ranks_below
from cascader.errors import DataError
from cascader.evaluation import evaluate
from cascader.evaluation.protocol import iter_blocks
from cascader.graph import KnowledgeGraph, Queries
from cascader.models import Frequency
from cascader.models.embeddings import ComplEx
from cascader.tuning import tune_alpha
from tests.evaluation.test_evaluate import Oracle, random_graph


class Counted:
    """A scorer that counts the questions it was asked."""

    def __init__(self, scorer):
        self.scorer, self.questions = scorer, 0

    def score_all(self, queries):
        self.questions += len(queries)
        return self.scorer.score_all(queries)


class Scaled:
    """A scorer whose scores are so many times as large."""

    def __init__(self, scorer, factor):
        self.scorer, self.factor = scorer, factor

    def score_all(self, queries):
        return self.scorer.score_all(queries) * self.factor

    def score(self, queries, candidates):
        return self.score_all(queries)[candidates.rows, candidates.ids]


def test_no_other_alpha_of_the_grid_is_better_on_valid():
    kg = random_graph()
    first, second = Frequency().fit(kg), Oracle(kg, noise=2.0)
    chosen = tune_alpha(first, second, kg)
    best = evaluate(Cascade(first).then(second, alpha=chosen), kg, "valid")
    for alpha in ALPHAS:
        for side in ("head", "tail"):
            other = evaluate(Cascade(first).then(second, alpha=float(alpha)), kg, "valid")
            assert other.slices["side"][side]["mrr"] <= best.slices["side"][side]["mrr"] + 1e-6


def test_the_figure_of_the_best_sum_is_its_mrr_on_valid():
    kg = random_graph()
    first, second = Frequency().fit(kg), Oracle(kg, noise=2.0)
    best = best_sum(first, second, kg, Queries.from_triples(kg.valid))
    together = evaluate(Cascade(first).then(second, alpha=best.alpha), kg, "valid")
    assert best.mrr == pytest.approx(together.mrr)


@pytest.mark.parametrize("by_side", [True, False])
def test_held_out_queries_get_the_alpha_that_is_best_for_the_others(by_side):
    draw = np.random.default_rng(0)
    queries = Queries.from_triples(draw.integers(9, size=(20, 3)))
    fold_of, tried = np.tile(np.arange(20) % 4, 2), draw.random((len(ALPHAS), 40))
    found = TunedBlend(ALPHAS, tried, queries, by_side).held_out(fold_of)
    for query in range(40):
        others = fold_of != fold_of[query]
        if by_side:
            others &= queries.predicts_tail == queries.predicts_tail[query]
        assert found[query] == tried[tried[:, others].sum(axis=1).argmax(), query]
    assert found.mean() < TunedBlend(ALPHAS, tried, queries, by_side).mrr  # which has chosen by what it is judged by


def test_each_model_sees_each_valid_question_once():
    kg = random_graph()
    first, second = Counted(Frequency().fit(kg)), Counted(Frequency().fit(kg))
    tune_alpha(first, second, kg)
    assert first.questions == second.questions <= 2 * len(kg.valid)


def test_the_better_model_gets_the_weight():
    kg = random_graph()
    alpha = tune_alpha(Oracle(kg), Oracle(kg, noise=50.0), kg)
    assert min(alpha.head, alpha.tail) > 0.9
    assert isinstance(alpha, Alpha)


def test_without_a_valid_split_there_is_nothing_to_choose_on():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], test=[("b", "r", "a")])
    with pytest.raises(DataError, match="has no valid triples to choose alpha on"):
        tune_alpha(Frequency().fit(kg), Frequency().fit(kg), kg)


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("k", [1, 4, 60])
def test_ranks_of_what_was_read_are_those_of_the_whole_reranking(scale, k):
    kg, fusion = random_graph(triples=900), Fusion(scale, "below")
    first, second = Frequency().fit(kg), ComplEx(dim=4, epochs=3).fit(kg)
    queries = Queries.from_triples(kg.valid)
    for block in iter_blocks(queries, kg.known(("train", "valid"))):
        scores = first.score_all(block.questions)
        masked = mask_known(scores, block.questions.with_known(kg.known_before("valid")))
        kept = TopK(k).keep(block.questions, masked)
        later = second.score(block.questions, kept)
        ranks = ranks_below(block, scores, masked, kept, later, fusion, ALPHAS)
        for i, alpha in enumerate(ALPHAS):
            weights = np.full(len(scores), alpha, dtype=np.float32)
            whole = block.rank(rerank(scores, masked, kept, later, weights, fusion)).filtered.mean
            np.testing.assert_array_equal(ranks[i], whole)


def test_the_grid_is_the_papers():
    np.testing.assert_allclose([ALPHAS[0], ALPHAS[-1]], [0.05, 0.95])


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("scale", ["raw", "standardized"])
def test_it_does_not_matter_in_what_unit_a_tier_gives_its_scores(factor, scale):
    kg = random_graph(triples=900)
    first, second = Frequency().fit(kg), Oracle(kg, noise=2.0)

    def found(later):
        queries, fusion = Queries.from_triples(kg.valid), Fusion(scale, "below")
        return best_reranking(first, later, kg, queries, TopK(10), fusion), best_sum(first, later, kg, queries)

    for one, other in zip(found(second), found(Scaled(second, factor)), strict=True):
        assert one.mrr == pytest.approx(other.mrr, abs=0.002)
    earlier = best_sum(first, first, kg, Queries.from_triples(kg.valid)).mrr
    assert all(each.mrr > earlier for each in found(Scaled(second, factor)))


def test_a_later_tier_that_knows_nothing_can_be_left_without_weight():
    kg = random_graph(triples=900)
    first, queries = Oracle(kg), Queries.from_triples(kg.valid)
    noise = Oracle(kg, noise=1e6)
    assert best_reranking(first, noise, kg, queries, TopK(10)).alpha == Alpha(1.0, 1.0)
    assert (
        best_reranking(first, noise, kg, queries, TopK(10), alphas=ALPHAS).mrr
        < best_reranking(first, noise, kg, queries, TopK(10)).mrr
    )


class RulesOut:
    """A tier that rules out every other entity with -inf."""

    def score_all(self, queries):
        scores = np.tile(np.arange(60, dtype=np.float32), (len(queries), 1))
        scores[:, ::2] = -np.inf
        return scores

    def score(self, queries, candidates):
        return self.score_all(queries)[candidates.rows, candidates.ids]


def test_what_a_tier_rules_out_does_not_matter_where_it_has_no_weight():
    kg = random_graph(triples=900)
    first, queries = Oracle(kg), Queries.from_triples(kg.valid)
    alone = evaluate(first, kg, "valid").mrr
    for found in (
        best_sum(first, RulesOut(), kg, queries),
        best_reranking(first, RulesOut(), kg, queries, TopK(10), Fusion("raw", "unchanged")),
        best_reranking(first, RulesOut(), kg, queries, TopK(10)),
    ):
        assert found.alpha == Alpha(1.0, 1.0)
        assert found.mrr == pytest.approx(alone)
