"""Losses of scores, of which higher are better."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def softmax_loss(scores: Tensor, rows: Tensor, answers: Tensor, weights: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy of answers against all entities; a question with many answers is scored only once.

    `scores` is (questions, entities); answer i belongs to question `rows[i]` and has the weight `weights[i]`.
    """
    loss: Tensor = _SoftmaxLoss.apply(scores, rows, answers, weights, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


def masked_softmax_loss(scores: Tensor, rows: Tensor, answers: Tensor, weights: Tensor, is_known: Tensor) -> Tensor:
    """The same, but an answer is not compared with other answers, where `is_known`, (questions, entities), is True."""
    golds = scores[rows, answers]
    negatives = scores.masked_fill(is_known, -torch.inf).logsumexp(dim=1)  # (questions,)
    return (torch.logaddexp(golds, negatives.index_select(0, rows)) - golds) @ weights


class _SoftmaxLoss(torch.autograd.Function):
    """Has its gradient in closed form, softmax minus the answers: two passes over the scores fewer than autograd."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's own
        scores: Tensor,
        rows: Tensor,
        answers: Tensor,
        weights: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        log_probabilities = scores.log_softmax(dim=1)
        of_questions = torch.zeros(len(scores)).index_add_(0, rows, weights)
        loss = -(log_probabilities[rows, answers] @ weights)
        if label_smoothing:
            of_all = -(log_probabilities.mean(dim=1) @ of_questions)
            loss = (1 - label_smoothing) * loss + label_smoothing * of_all
        gradient = log_probabilities.exp_()
        gradient -= label_smoothing / scores.shape[1]
        gradient *= of_questions[:, None]
        gradient.index_put_((rows, answers), (label_smoothing - 1) * weights, accumulate=True)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(of_loss), None, None, None, None  # in place: there is no second backward pass


def self_adversarial(
    gold_scores: Tensor, scores: Tensor, is_negative: Tensor, margin: float, temperature: float
) -> Tensor:
    """Logistic loss with a margin, weighing hard negatives more (Sun et al., 2019, Eq. 5).

    `gold_scores` is (queries,), `scores` and `is_negative` are (queries, sampled entities).
    """
    hardness = (temperature * scores).masked_fill(~is_negative, -torch.inf)
    # A query whose sampled entities are all true answers has no negatives, so its softmax is NaN.
    weights = hardness.softmax(dim=1).nan_to_num(0.0).detach()
    of_negatives = (weights * logsigmoid(-margin - scores)).sum(dim=1)
    return -(logsigmoid(margin + gold_scores) + of_negatives).mean() / 2
