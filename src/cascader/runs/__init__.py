"""A run: a graph, the tiers fitted to it, and the answers they give."""

from cascader.durations import format_duration, parse_duration
from cascader.runs.cost_estimates import MeasuredCosts
from cascader.runs.new_entities import about_new, parse_entity
from cascader.runs.plan import FitPlan, PlannedTier, load_plan, save_plan
from cascader.runs.planner import PRESETS, Choice, CostEstimator, choose, shares
from cascader.runs.prediction import Answered, Prediction, Verdict
from cascader.runs.predictor import Predictor
from cascader.runs.questions import Rows, every_question, joined, read_questions, read_triples
from cascader.runs.run import (
    READ_TOP,
    READING_TIERS,
    TIERS,
    Run,
    finish_run,
    has_tier,
    hash_of_tier,
    is_finished,
    keep_graph,
    keep_tier,
    load_run,
    load_scorer,
    load_tier,
    save_run,
    stored_tier,
    tier_folder,
)
from cascader.runs.thresholds import with_threshold

__all__ = [
    "Answered",
    "Predictor",
    "Choice",
    "FitPlan",
    "MeasuredCosts",
    "PRESETS",
    "PlannedTier",
    "Prediction",
    "CostEstimator",
    "READING_TIERS",
    "READ_TOP",
    "Rows",
    "Run",
    "TIERS",
    "Verdict",
    "about_new",
    "choose",
    "parse_entity",
    "every_question",
    "finish_run",
    "has_tier",
    "hash_of_tier",
    "format_duration",
    "is_finished",
    "joined",
    "keep_graph",
    "keep_tier",
    "load_plan",
    "load_run",
    "load_scorer",
    "load_tier",
    "read_questions",
    "read_triples",
    "save_plan",
    "save_run",
    "parse_duration",
    "shares",
    "stored_tier",
    "tier_folder",
    "with_threshold",
]
