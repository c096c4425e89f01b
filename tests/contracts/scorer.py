"""What every scorer must do, be it a tier, an ensemble or a cascade."""

from typing import ClassVar

import numpy as np
import pytest

from cascader.graph import Candidates, KnowledgeGraph, Queries
from cascader.scoring.scorer import Scorer


class ScorerContract:
    """Inherit, and say in `make` how the scorer is fitted."""

    #: A sum of float32 numbers depends a little on the order in which they are added.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-5, "atol": 1e-6}

    def make(self, kg: KnowledgeGraph) -> Scorer:
        raise NotImplementedError

    @pytest.fixture
    def scorer(self, toy):
        return self.make(toy)

    @pytest.fixture
    def queries(self, toy):
        return Queries.from_triples(toy.triples())

    def test_scores_every_entity_in_float32_without_nan(self, scorer, toy, queries):
        scores = scorer.score_all(queries)
        assert scores.shape == (len(queries), len(toy.entities))
        assert scores.dtype == np.float32
        assert not np.isnan(scores).any()

    def test_scores_a_question_the_same_alone_and_in_a_block(self, scorer, queries):
        together = scorer.score_all(queries)
        for row in range(len(queries)):
            np.testing.assert_allclose(scorer.score_all(queries[row : row + 1])[0], together[row], **self.close)

    def test_scores_candidates_as_it_scores_all_entities(self, scorer, toy, queries):
        rng = np.random.default_rng(0)
        lists = [rng.choice(len(toy.entities), size=row % 4, replace=False).tolist() for row in range(len(queries))]
        candidates = Candidates.from_lists(lists)
        expected = scorer.score_all(queries)[candidates.rows, candidates.ids]
        np.testing.assert_allclose(scorer.score(queries, candidates), expected, **self.close)

    def test_scores_no_candidates_as_nothing(self, scorer, queries):
        assert scorer.score(queries, Candidates.from_lists([[] for _ in range(len(queries))])).shape == (0,)

    def test_gives_the_same_scores_twice_and_leaves_its_input_alone(self, scorer, queries):
        anchors = queries.anchors.copy()
        first = scorer.score_all(queries).copy()
        np.testing.assert_array_equal(scorer.score_all(queries), first)
        np.testing.assert_array_equal(queries.anchors, anchors)
