"""From what was read of a pair to its score."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from cascader.models.text.towers import small_network

_DIM, _HIDDEN, _DROPOUT = 256, 512, 0.3
_TEMPERATURE = 0.05


class PairHead(nn.Module):
    """From the first token's state to a score, as BERT's own classifiers do; and to a relation, for KG-BERT's loss."""

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
        """What both classifiers read: of what a reader gives, the first token; shape (pairs, width)."""
        pooled: Tensor = self.pooler(read[:, : self._width]).tanh()
        return pooled


class MatchingHead(PairHead):
    """Adds how well what was gathered from the anchor matches what was gathered from the candidate.

    Through a single layer the first token sees a sum of both, and whether they fit is slow to learn from a sum.
    """

    def __init__(self, width: int, relation_count: int) -> None:
        super().__init__(width, relation_count)
        nn.init.zeros_(self.classifier.weight)  # what is read of the pair starts as no correction
        nn.init.zeros_(self.classifier.bias)
        self.match = Match(width)

    def forward(self, read: Tensor) -> Tensor:
        """Scores; shape (pairs,). `read` is the pair's first token, and what it was made of, end to end."""
        _, first, anchor, candidate = read.chunk(4, dim=1)
        matched = (self.match.questions(first, anchor) * self.match.candidates(candidate)).sum(dim=1)
        scores: Tensor = super().forward(read) + matched
        return scores


class Match(nn.Module):
    """Vectors of the two sides of a pair; how well they match is their product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.question_network = small_network(2 * width, _HIDDEN, _DIM, _DROPOUT)
        self.candidate_network = small_network(width, _HIDDEN, _DIM, _DROPOUT)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(_TEMPERATURE)))

    def questions(self, first: Tensor, anchor: Tensor) -> Tensor:
        """From the first token as it was and what it gathered from the anchor; shape (questions, coordinates)."""
        joined = torch.cat([_scaled(first), _scaled(anchor)], dim=1)
        return self.log_scale.exp() * normalize(self.question_network(joined), dim=1)

    def candidates(self, gathered: Tensor) -> Tensor:
        """Of length one; shape (candidates, coordinates)."""
        return normalize(self.candidate_network(_scaled(gathered)), dim=1)


def _scaled(vectors: Tensor) -> Tensor:
    return layer_norm(vectors, vectors.shape[1:])
