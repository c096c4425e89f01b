"""A cascade of tiers, each of which changes the scores of those before it."""

from cascader.cascade.answers import Answer, Trace, answers_of, best_places, known_mask
from cascader.cascade.blend import Alpha, Fusion, Pruned, Scale, blend, blend_all, mask_known, rerank
from cascader.cascade.cascade import Cascade, Deadline, MeteredCascade, Step, Tier, TierUsage, UsageLog, pairs_of
from cascader.cascade.pruners import Pruner, TopK

__all__ = [
    "Alpha",
    "Answer",
    "Cascade",
    "Deadline",
    "Fusion",
    "MeteredCascade",
    "Pruned",
    "Pruner",
    "Scale",
    "Step",
    "Tier",
    "TierUsage",
    "TopK",
    "Trace",
    "UsageLog",
    "blend_all",
    "answers_of",
    "best_places",
    "blend",
    "mask_known",
    "known_mask",
    "pairs_of",
    "rerank",
]
