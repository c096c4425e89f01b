"""Entities to tell the gold answer from."""

import torch
from torch import Tensor

from cascader.graph import Candidates


def sample_entities(count: int, entity_count: int, generator: torch.Generator) -> Tensor:
    """Draw different entities that a whole batch shares, so that scoring them is one matrix product; shape (count,)."""
    return torch.randperm(entity_count, generator=generator)[:count]


def is_negative(sampled: Tensor, known: Candidates, entity_count: int) -> Tensor:
    """Which sampled entities are not known answers of each query; shape (queries, sampled).

    A true answer is never pushed down, which unfiltered sampling does on small graphs all the time.
    """
    place = torch.full((entity_count,), -1)
    place[sampled] = torch.arange(len(sampled))
    rows, places = torch.from_numpy(known.rows), place[torch.from_numpy(known.ids).long()]
    was_drawn = places >= 0
    negative = torch.ones(len(known), len(sampled), dtype=torch.bool)
    negative[rows[was_drawn], places[was_drawn]] = False
    return negative
