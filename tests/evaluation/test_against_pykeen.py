"""Our ranks and metrics equal PyKEEN's, whatever the scores."""

import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascader.evaluation import evaluate
from cascader.graph import Entity, KnowledgeGraph, Queries, Relation

torch = pytest.importorskip("torch", reason="torch is not installed")

ENTITIES, RELATIONS = 7, 2


class TableScorer:
    """Looks every score up: one row for each side, relation and anchor."""

    def __init__(self, scores):
        self.scores = scores  # (2, relations, anchors, entities)

    def score_all(self, queries):
        return self.scores[queries.predicts_tail.astype(int), queries.relations, queries.anchors]

    def score(self, queries, candidates):
        return self.score_all(queries)[candidates.rows, candidates.ids]


@cache
def pykeen():
    """What we take from PyKEEN, loaded for its first test alone: it takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyKEEN's own imports warn
        evaluation = pytest.importorskip("pykeen.evaluation", reason="pykeen is not installed")
        from pykeen.evaluation.ranks import Ranks
        from pykeen.models import ComplEx
        from pykeen.triples import CoreTriplesFactory

    class TableModel(ComplEx):
        """The same table as a PyKEEN model."""

        def use(self, scores):
            self.table = torch.from_numpy(scores)
            return self

        def score_t(self, hr_batch, **options):
            return self.table[1, hr_batch[:, 1], hr_batch[:, 0]].clone()

        def score_h(self, rt_batch, **options):
            return self.table[0, rt_batch[:, 0], rt_batch[:, 1]].clone()

    return SimpleNamespace(
        RankBasedEvaluator=evaluation.RankBasedEvaluator,
        Ranks=Ranks,
        CoreTriplesFactory=CoreTriplesFactory,
        TableModel=TableModel,
    )


def scores_of(kind, seed):
    rng = np.random.default_rng(seed)
    shape = (2, RELATIONS, ENTITIES, ENTITIES)
    if kind == "random":
        return rng.normal(size=shape).astype(np.float32)
    if kind == "tied":
        return rng.integers(0, 3, size=shape).astype(np.float32)
    values = [0.0, -0.0, 1e-45, 1.0, np.nextafter(np.float32(1), np.float32(2)), 3e38, -3e38]
    return rng.choice(np.array(values, dtype=np.float32), size=shape)


@st.composite
def graphs(draw):
    rows = [(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES)]
    chosen = draw(st.lists(st.sampled_from(rows), min_size=3, max_size=30, unique=True))
    cut = draw(st.integers(1, len(chosen) - 2))
    train, valid, test = chosen[:cut], chosen[cut : cut + 1], chosen[cut + 1 :]
    entities = tuple(Entity(f"e{i}", f"e{i}") for i in range(ENTITIES))
    relations = tuple(Relation(f"r{i}", f"r{i}") for i in range(RELATIONS))
    return KnowledgeGraph("g", entities, relations, *(np.array(part, dtype=np.int32) for part in (train, valid, test)))


def evaluated_by_pykeen(kg, scores):
    splits = {name: torch.from_numpy(np.array(kg.split(name), dtype=np.int64)) for name in ("train", "valid", "test")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factory = pykeen().CoreTriplesFactory(splits["train"], num_entities=ENTITIES, num_relations=RELATIONS)
        model = pykeen().TableModel(triples_factory=factory, embedding_dim=2, random_seed=0).use(scores)
        evaluator = pykeen().RankBasedEvaluator(filtered=True)
        return evaluator.evaluate(
            model,
            splits["test"],
            batch_size=4,
            additional_filter_triples=[splits["train"], splits["valid"]],
            use_tqdm=False,
        )


def raw_ranks_of_pykeen(kg, scores):
    """PyKEEN's evaluator fails when unfiltered ("needs the true scores"), so its ranks are asked for directly."""
    queries = Queries.from_triples(kg.test)
    rows = torch.from_numpy(TableScorer(scores).score_all(queries))
    golds = rows.gather(1, torch.from_numpy(queries.golds.astype(np.int64))[:, None])
    return pykeen().Ranks.from_scores(true_score=golds, all_scores=rows)


PYKEEN_NAMES = {
    "mrr": "inverse_harmonic_mean_rank",
    "hits@1": "hits_at_1",
    "hits@3": "hits_at_3",
    "hits@10": "hits_at_10",
    "mean_rank": "arithmetic_mean_rank",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "tied", "adversarial"])
@settings(max_examples=60, deadline=None)
@given(kg=graphs(), seed=st.integers(0, 10_000))
def test_all_figures_equal_pykeens(kind, kg, seed):
    scores = scores_of(kind, seed)
    ours = evaluate(TableScorer(scores), kg).as_dict()
    theirs = evaluated_by_pykeen(kg, scores)
    for metric, name in PYKEEN_NAMES.items():
        assert ours[metric] == pytest.approx(theirs.get_metric(f"both.realistic.{name}"), rel=1e-6)
        for way in ("optimistic", "pessimistic"):
            assert ours[way][metric] == pytest.approx(theirs.get_metric(f"both.{way}.{name}"), rel=1e-6)
        for side in ("head", "tail"):
            assert ours["slices"]["side"][side][metric] == pytest.approx(
                theirs.get_metric(f"{side}.realistic.{name}"), rel=1e-6
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "tied", "adversarial"])
@settings(max_examples=60, deadline=None)
@given(kg=graphs(), seed=st.integers(0, 10_000))
def test_raw_ranks_equal_pykeens(kind, kg, seed):
    scores = scores_of(kind, seed)
    ours = evaluate(TableScorer(scores), kg).ranks.raw
    theirs = raw_ranks_of_pykeen(kg, scores)
    np.testing.assert_array_equal(ours.optimistic, theirs.optimistic)
    np.testing.assert_array_equal(ours.mean, theirs.realistic)
    np.testing.assert_array_equal(ours.pessimistic, theirs.pessimistic)


def test_pykeen_asks_the_questions_that_we_ask(toy):
    """The two sides are easy to swap, and a mean over both would hide it."""
    queries = Queries.from_triples(toy.test)
    assert queries.sides[: len(toy.test)] == ["tail"] * len(toy.test)
    np.testing.assert_array_equal(queries.anchors[: len(toy.test)], toy.test[:, 0])
