"""Tiers, one after the other: each reweights what the ones before it said."""

from cascader.cascade.blend import Alpha, blend
from cascader.cascade.cascade import Cascade

__all__ = ["Alpha", "Cascade", "blend"]
