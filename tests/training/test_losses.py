"""Losses against torch's own, values and gradients."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from cascader.training.losses import self_adversarial, softmax_loss


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


def test_scores_far_apart_stay_finite():
    scores = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = softmax_loss(scores, torch.tensor([0]), torch.tensor([1]), torch.ones(1), 0.1)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


def test_a_query_whose_sampled_entities_are_all_true_has_only_its_gold_to_learn_from():
    loss = self_adversarial(torch.tensor([-1.0]), torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 6.0, 1.0)
    torch.testing.assert_close(loss, -torch.nn.functional.logsigmoid(torch.tensor(5.0)) / 2)
