"""Tiers, one after the other: each reweights what the ones before it said."""

from cascader.cascade.blend import Alpha, blend, mask_known, rerank
from cascader.cascade.cascade import Cascade, Tier
from cascader.pruning import Pruner, TopK

__all__ = ["Alpha", "Cascade", "Pruner", "Tier", "TopK", "blend", "mask_known", "rerank"]
