"""Entities to tell the gold answer from."""

import torch
from torch import Tensor

from cascader.graph import Candidates, KnownAnswers, Queries
from cascader.scoring.scorer import Scorer

_QUESTIONS_AT_ONCE = 256


def sample_entities(count: int, entity_count: int, generator: torch.Generator) -> Tensor:
    """Draw distinct entities for a whole batch to share, so that scoring them is one matrix product; shape (count,)."""
    return torch.randperm(entity_count, generator=generator)[:count]


def is_negative(sampled: Tensor, known: Candidates, entity_count: int) -> Tensor:
    """Which sampled entities are not known answers of each query; shape (queries, sampled).

    A true answer is never pushed down, which unfiltered sampling does all the time on small graphs.
    """
    place = torch.full((entity_count,), -1)
    place[sampled] = torch.arange(len(sampled))
    rows, places = torch.from_numpy(known.rows), place[torch.from_numpy(known.ids).long()]
    was_drawn = places >= 0
    negative = torch.ones(len(known), len(sampled), dtype=torch.bool)
    negative[rows[was_drawn], places[was_drawn]] = False
    return negative


def hard_negatives(earlier: Scorer | None, questions: Queries, known: KnownAnswers, count: int) -> Tensor:
    """The entities that an earlier tier ranks highest and that are not known answers; shape (questions, count)."""
    if earlier is None or count == 0:
        return torch.empty(len(questions), 0, dtype=torch.long)
    found = []
    for block in questions.blocks(_QUESTIONS_AT_ONCE):
        scores = torch.from_numpy(earlier.score_all(block).copy())
        answers = known.of(block)
        scores[torch.from_numpy(answers.rows), torch.from_numpy(answers.ids).long()] = -torch.inf
        found.append(scores.topk(min(count, scores.shape[1])).indices)
    return torch.cat(found)
