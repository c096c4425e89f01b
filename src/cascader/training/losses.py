"""The losses of embeddings; each takes scores, higher being better, and gives one number."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid


def one_vs_all(scores: Tensor, golds: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy of the gold answer against all entities; `scores` is (queries, entities)."""
    return cross_entropy(scores, golds, label_smoothing=label_smoothing)


def k_vs_all(scores: Tensor, rows: Tensor, answers: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy against all answers of each question at once, each with the same share of the probability.

    `scores` is (questions, entities); answer i belongs to question `rows[i]`.
    """
    log_probabilities = scores.log_softmax(dim=1)
    counts = torch.bincount(rows, minlength=len(scores))
    of_answers = (log_probabilities[rows, answers] / counts[rows]).sum()
    of_all = log_probabilities.mean(dim=1).sum()
    return -((1 - label_smoothing) * of_answers + label_smoothing * of_all) / len(scores)


def self_adversarial(
    gold_scores: Tensor, scores: Tensor, is_negative: Tensor, margin: float, temperature: float
) -> Tensor:
    """Logistic loss with a margin, in which hard negatives weigh more (Sun et al., 2019, Eq. 5).

    `gold_scores` is (queries,), `scores` and `is_negative` are (queries, sampled entities).
    """
    hardness = (temperature * scores).masked_fill(~is_negative, -torch.inf)
    # A query whose sampled entities are all true answers has no negatives, and no weights to share out.
    weights = hardness.softmax(dim=1).nan_to_num(0.0).detach()
    of_negatives = (weights * logsigmoid(-margin - scores)).sum(dim=1)
    return -(logsigmoid(margin + gold_scores) + of_negatives).mean() / 2
