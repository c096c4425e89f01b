"""Losses against torch's own, values and gradients."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from cascader.graph import KnownAnswers, Queries
from cascader.models.optimization import (
    hard_negatives,
    masked_softmax_loss,
    sample_entities,
    self_adversarial,
    softmax_loss,
)
from cascader.scoring import RejectingScorer


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_a_row_of_scores_for_all_answers_of_a_question_is_the_same_as_a_row_an_answer(label_smoothing):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 7, generator=generator, requires_grad=True)
    rows, answers = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([1, 5, 0, 6, 2, 3])
    weights = torch.rand(6, generator=generator)
    ours = 3 * softmax_loss(scores, rows, answers, weights, label_smoothing)
    (gradient,) = torch.autograd.grad(ours, scores)
    losses = cross_entropy(scores[rows], answers, reduction="none", label_smoothing=label_smoothing)
    theirs = 3 * (losses @ weights)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs, scores)[0])


def test_masked_each_answer_is_compared_with_itself_and_what_is_no_answer():
    scores = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    rows, answers, weights = torch.tensor([0, 0, 1]), torch.tensor([1, 4, 2]), torch.tensor([0.2, 0.5, 0.3])
    is_known = torch.zeros(2, 5, dtype=torch.bool).index_put((rows, answers), torch.tensor(True))
    ours = masked_softmax_loss(scores, rows, answers, weights, is_known)
    (gradient,) = torch.autograd.grad(ours, scores)
    alone = [scores[0, [0, 1, 2, 3]], scores[0, [0, 4, 2, 3]], scores[1]]  # without the other answers of the question
    places = [1, 1, 2]
    losses = torch.stack([cross_entropy(row, torch.tensor(place)) for row, place in zip(alone, places, strict=True)])
    torch.testing.assert_close(ours, losses @ weights)
    torch.testing.assert_close(gradient, torch.autograd.grad(losses @ weights, scores)[0])


def test_masked_a_question_of_which_all_are_answers_teaches_nothing():
    scores, everyone = torch.randn(1, 2, requires_grad=True), torch.ones(1, 2, dtype=torch.bool)
    loss = masked_softmax_loss(scores, torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2), everyone)
    loss.backward()
    assert (loss.item(), scores.grad.tolist()) == (0, [[0, 0]])


def test_scores_far_apart_stay_finite():
    scores = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = softmax_loss(scores, torch.tensor([0]), torch.tensor([1]), torch.ones(1), 0.1)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


def test_a_query_whose_sampled_entities_are_all_true_has_only_its_gold_to_learn_from():
    loss = self_adversarial(torch.tensor([-1.0]), torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 6.0, 1.0)
    torch.testing.assert_close(loss, -torch.nn.functional.logsigmoid(torch.tensor(5.0)) / 2)


def test_what_people_rejected_is_the_hardest_negative_and_what_is_known_none():
    class Ascending:
        def score_all(self, queries):
            return np.tile(np.arange(6, dtype=np.float32), (len(queries), 1))

    known, rejected = (KnownAnswers(np.array([fact], dtype=np.int32), 6, 1) for fact in ((0, 0, 5), (0, 0, 1)))
    questions = Queries(np.array([0, 2]), np.zeros(2, dtype=int), np.array([True, True]))
    assert hard_negatives(Ascending(), questions, known, 2).tolist() == [[4, 3], [5, 4]]
    assert hard_negatives(RejectingScorer(Ascending(), rejected), questions, known, 2).tolist() == [[1, 4], [5, 4]]


@pytest.mark.parametrize("entity_count", [50, 1_000_000])
def test_sampled_entities_are_distinct_and_the_seed_decides(entity_count):
    first, again = (sample_entities(1024, entity_count, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert len(set(first.tolist())) == len(first)
    assert min(50, 1000) <= len(first) <= min(entity_count, 1024)
    assert 0 <= first.min() <= first.max() < entity_count
