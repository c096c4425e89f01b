"""The heads of a cross encoder: from the states of a pair to its score."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from cascader.models.text.towers import small_network

_DIM, _HIDDEN, _DROPOUT = 256, 512, 0.3
_TEMPERATURE = 0.05


class PairHead(nn.Module):
    """From the state of [CLS] to a score, as in BERT's own classifiers, and to a relation, for KG-BERT's loss."""

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__()
        self._width = width
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 1)
        self.relation_classifier = nn.Linear(width, 2 * relation_count)

    def forward(self, read: Tensor) -> Tensor:
        """Scores; shape (pairs,)."""
        scores: Tensor = self.classifier(self.pooled(read))[:, 0]
        return scores

    def pooled(self, read: Tensor) -> Tensor:
        """The input of both classifiers, from the state of [CLS]; shape (pairs, width)."""
        pooled: Tensor = self.pooler(read[:, : self._width]).tanh()
        return pooled


class MatchingHead(PairHead):
    """Adds how well the attention context of the anchor matches that of the candidate.

    Through a single layer, [CLS] sees the sum of both, and a match is slow to learn from a sum.
    """

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__(width, relation_count)
        nn.init.zeros_(self.classifier.weight)  # the pair's own score starts as no correction
        nn.init.zeros_(self.classifier.bias)
        self.match = MatchScorer(width)

    def forward(self, read: Tensor) -> Tensor:
        """Scores; shape (pairs,). `read` is [CLS] after and before the layer, and both contexts: (pairs, 4 · width)."""
        _, first, anchor, candidate = read.chunk(4, dim=1)
        matched = (self.match.questions(first, anchor) * self.match.candidates(candidate)).sum(dim=1)
        scores: Tensor = super().forward(read) + matched
        return scores


class MatchScorer(nn.Module):
    """Encodes the two sides of a pair; the dot product says how well they match."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.question_network = small_network(2 * width, _HIDDEN, _DIM, _DROPOUT)
        self.candidate_network = small_network(width, _HIDDEN, _DIM, _DROPOUT)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(_TEMPERATURE)))

    def questions(self, first: Tensor, anchor: Tensor) -> Tensor:
        """From [CLS] before the layer and the anchor's context; shape (questions, coordinates)."""
        joined = torch.cat([_scaled(first), _scaled(anchor)], dim=1)
        return self.log_scale.exp() * normalize(self.question_network(joined), dim=1)

    def candidates(self, context: Tensor) -> Tensor:
        """Unit vectors; shape (candidates, coordinates)."""
        return normalize(self.candidate_network(_scaled(context)), dim=1)


def _scaled(vectors: Tensor) -> Tensor:
    return layer_norm(vectors, vectors.shape[1:])
