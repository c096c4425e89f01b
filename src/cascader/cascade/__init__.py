"""Tiers, one after the other: each reweights what the ones before it said."""

from cascader.cascade.answers import Answer, Trace, answer, answers_of, known_mask
from cascader.cascade.blend import Alpha, Fusion, Pruned, Scale, blend, blend_all, mask_known, rerank
from cascader.cascade.cascade import Cascade, Tier
from cascader.cascade.deadline import Deadline
from cascader.cascade.pruners import Pruner, TopK
from cascader.cascade.steps import Cost, Step, Tally, pairs_of

__all__ = [
    "Alpha",
    "Answer",
    "Cascade",
    "Deadline",
    "Cost",
    "Fusion",
    "Pruned",
    "Pruner",
    "Scale",
    "Step",
    "Tally",
    "Tier",
    "TopK",
    "Trace",
    "blend_all",
    "answer",
    "answers_of",
    "blend",
    "mask_known",
    "known_mask",
    "pairs_of",
    "rerank",
]
