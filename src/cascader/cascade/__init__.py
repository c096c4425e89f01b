"""Tiers, one after the other: each reweights what the ones before it said."""

from cascader.cascade.answers import Answer, Trace, answer, answers_of, mask_of
from cascader.cascade.blend import Alpha, Fusion, PrunedTail, Scale, add_up, blend, mask_known, rerank
from cascader.cascade.cascade import Cascade, Tier
from cascader.cascade.deadline import Clock
from cascader.cascade.pruners import Pruner, TopK
from cascader.cascade.steps import Cost, Step, Tally, pairs_of

__all__ = [
    "Alpha",
    "Answer",
    "Cascade",
    "Clock",
    "Cost",
    "Fusion",
    "PrunedTail",
    "Pruner",
    "Scale",
    "Step",
    "Tally",
    "Tier",
    "TopK",
    "Trace",
    "add_up",
    "answer",
    "answers_of",
    "blend",
    "mask_known",
    "mask_of",
    "pairs_of",
    "rerank",
]
