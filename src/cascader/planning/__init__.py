"""What a budget is spent on: tiers and presets, foretold from a moment of each training."""

from cascader.planning.choosing import PRESETS, Choice, Prices, choose, shares
from cascader.planning.durations import in_words, seconds_of
from cascader.planning.measuring import Measured
from cascader.planning.plan import FitPlan, PlannedTier, load_plan, save_plan

__all__ = [
    "PRESETS",
    "Choice",
    "FitPlan",
    "Measured",
    "PlannedTier",
    "Prices",
    "choose",
    "in_words",
    "load_plan",
    "save_plan",
    "seconds_of",
    "shares",
]
