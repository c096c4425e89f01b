"""What every pruner must do, whether it learns or not."""

import json

import numpy as np
import pytest

from cascader.cascade.pruners import Pruner, ScoredQueries, load_pruner
from cascader.errors import DataError, NotFittedError
from cascader.graph import Queries

ENTITIES = 40


def a_block(count=60, seed=0, entities=ENTITIES):
    """Make queries with golds that stand out to different degrees, ties, and masked known answers."""
    rng = np.random.default_rng(seed)
    golds = rng.integers(entities, size=count)
    scores = rng.normal(size=(count, entities)).round(1).astype(np.float32)
    masked = rng.random(scores.shape) < 0.2
    masked[np.arange(count), golds] = False
    scores[np.arange(count), golds] += rng.uniform(0, 4, size=count).astype(np.float32).round(1)
    scores[masked] = -np.inf
    queries = Queries(
        rng.integers(entities, size=count), rng.integers(3, size=count), rng.random(count) < 0.5, golds=golds
    )
    return ScoredQueries(queries, scores)


def lists_of(candidates):
    return [candidates[row].tolist() for row in range(len(candidates))]


class PrunerContract:
    """What every pruner must do; subclasses implement `make`, which makes a fitted pruner."""

    def make(self, blocks: list[ScoredQueries]) -> Pruner:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def pruner(cls):
        """Fit the pruner once for all tests of a class: keeping candidates does not change it."""
        return cls().make([a_block()])

    def test_keeps_the_best_and_puts_the_best_first(self, pruner):
        block = a_block(seed=1)
        kept = pruner.keep(block.queries, block.scores)
        for row, ids in enumerate(lists_of(kept)):
            unmasked = np.flatnonzero(block.scores[row] > -np.inf)
            by_score_then_id = sorted(unmasked.tolist(), key=lambda entity: (-block.scores[row, entity], entity))
            assert ids == by_score_then_id[: len(ids)]

    def test_never_keeps_what_is_masked_and_always_one_of_what_is_not(self, pruner):
        block = a_block(seed=1)
        scores = block.scores.copy()
        scores[0] = -np.inf
        scores[1] = -np.inf
        scores[1, 7] = 0.5
        kept = pruner.keep(block.queries, scores)
        assert (scores[kept.rows, kept.ids] > -np.inf).all()
        assert lists_of(kept)[:2] == [[], [7]]
        assert (kept.counts[1:] >= 1).all()

    def test_can_do_with_scores_that_are_all_alike(self, pruner):
        block = a_block(seed=1)
        kept = pruner.keep(block.queries, np.full_like(block.scores, 0.1))
        assert all(ids == list(range(len(ids))) and ids for ids in lists_of(kept))

    def test_keeps_the_same_candidates_of_a_query_alone_and_in_a_block(self, pruner):
        block = a_block(seed=1)
        alone = [
            pruner.keep(block.queries[row : row + 1], block.scores[row : row + 1])[0].tolist()
            for row in range(len(block.queries))
        ]
        assert lists_of(pruner.keep(block.queries, block.scores)) == alone

    def test_keeps_the_very_same_candidates_after_it_was_saved_and_loaded(self, pruner):
        block = a_block(seed=1)
        as_json = json.dumps(pruner.as_dict(), allow_nan=False)
        arrays = {name: values.copy() for name, values in pruner.tensors().items()}
        loaded = load_pruner(json.loads(as_json), arrays)
        assert loaded.as_dict() == pruner.as_dict()
        assert lists_of(loaded.keep(block.queries, block.scores)) == lists_of(pruner.keep(block.queries, block.scores))

    def test_leaves_its_input_alone(self, pruner):
        block = a_block(seed=1)
        scores, anchors = block.scores.copy(), block.queries.anchors.copy()
        pruner.keep(block.queries, block.scores)
        np.testing.assert_array_equal(block.scores, scores)
        np.testing.assert_array_equal(block.queries.anchors, anchors)

    def test_keeps_nothing_of_no_queries(self, pruner):
        block = a_block(seed=1)
        kept = pruner.keep(block.queries[:0], block.scores[:0])
        assert (len(kept), len(kept.ids)) == (0, 0)


class LearningPrunerContract(PrunerContract):
    """What a pruner that learns must also do; subclasses implement `unfitted`, which makes one that is not fitted."""

    def unfitted(self) -> Pruner:
        raise NotImplementedError

    def make(self, blocks):
        return self.unfitted().fit(blocks)

    def test_learns_the_same_from_one_block_and_from_many_in_any_order(self):
        block = a_block()
        many = [ScoredQueries(block.queries[at : at + 7], block.scores[at : at + 7]) for at in range(0, 60, 7)]
        together, apart = self.make([block]), self.make(many[::-1])
        other = a_block(seed=1)
        assert lists_of(together.keep(other.queries, other.scores)) == lists_of(apart.keep(other.queries, other.scores))

    def test_learning_leaves_what_was_seen_alone(self):
        block = a_block()
        scores = block.scores.copy()
        self.make([block])
        np.testing.assert_array_equal(block.scores, scores)

    def test_learns_even_from_a_single_query(self):
        block = a_block(count=1)
        kept = self.make([block]).keep(block.queries, block.scores)
        assert kept.counts[0] >= 1

    def test_learns_from_rows_in_which_nearly_all_is_masked(self):
        block = a_block(count=8)
        scores = np.full_like(block.scores, -np.inf)
        scores[np.arange(4), block.queries.golds[:4]] = 1.0  # the gold itself is masked in the other four
        pruner = self.make([ScoredQueries(block.queries, scores)])
        assert pruner.keep(block.queries, scores).counts.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]

    def test_learning_from_nothing_is_an_error(self):
        block = a_block()
        with pytest.raises(DataError, match="there are no queries to"):
            self.make([])
        with pytest.raises(DataError, match="there are no queries to"):
            self.make([ScoredQueries(block.queries[:0], block.scores[:0])])

    def test_cannot_be_asked_before_it_was_fitted(self):
        block = a_block()
        with pytest.raises(NotFittedError, match="has not been fitted"):
            self.unfitted().keep(block.queries, block.scores)

    def test_its_settings_can_be_saved_before_it_was_fitted(self):
        loaded = load_pruner(self.unfitted().as_dict(), self.unfitted().tensors())
        assert loaded.as_dict() == self.unfitted().as_dict()
