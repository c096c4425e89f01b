"""A run: a graph, the tiers fitted to it, and the answers they give."""

from cascader.runs.calibrations import LabelGain
from cascader.runs.decisions import Decision, Decisions, Outcome, checked_reviewer
from cascader.runs.fit import fit, fit_requested, plan_fit
from cascader.runs.folder import RunFolder
from cascader.runs.measurement import read_blocks, read_share
from cascader.runs.plan import emit_plan
from cascader.runs.prediction import PREDICTION_COLUMNS, Prediction, Predictions, Verdict, percent
from cascader.runs.predictor import Predictor, with_threshold
from cascader.runs.questions import (
    Rows,
    can_read_new,
    every_question,
    for_new_entities,
    joined,
    joined_labels,
    parse_entity,
    read_labels,
    read_questions,
    read_triples,
)
from cascader.runs.reasons import Fact, TierReason
from cascader.runs.reproduction import plan_requested, reproduce, reproduce_requested
from cascader.runs.reproduction_plan import emit_reproduction_plan
from cascader.runs.reproduction_state import Reproduction
from cascader.runs.request import fit_request, tier_kinds
from cascader.runs.review import REVIEW_COLUMNS, Review
from cascader.runs.run import Run, load_run, save_run
from cascader.runs.work_list import LINK_COLUMNS, Link, WorkList, link_of, questions_about

__all__ = [
    "LINK_COLUMNS",
    "PREDICTION_COLUMNS",
    "REVIEW_COLUMNS",
    "Decision",
    "Decisions",
    "Fact",
    "LabelGain",
    "Link",
    "Outcome",
    "Prediction",
    "Predictions",
    "Predictor",
    "Reproduction",
    "Review",
    "Rows",
    "Run",
    "RunFolder",
    "TierReason",
    "Verdict",
    "WorkList",
    "can_read_new",
    "checked_reviewer",
    "emit_plan",
    "emit_reproduction_plan",
    "every_question",
    "fit",
    "fit_request",
    "fit_requested",
    "for_new_entities",
    "joined",
    "joined_labels",
    "link_of",
    "load_run",
    "parse_entity",
    "percent",
    "plan_fit",
    "plan_requested",
    "questions_about",
    "read_blocks",
    "read_labels",
    "read_questions",
    "read_share",
    "read_triples",
    "reproduce",
    "reproduce_requested",
    "save_run",
    "tier_kinds",
    "with_threshold",
]
