"""Choose tiers, weights and pruners on valid, without running any model twice."""

from cascader.cascade.alphas import best_reranking, best_sum, tune_alpha
from cascader.tuning.result import (
    COSTS,
    READ_TOP,
    Budget,
    Plan,
    Trial,
    TuningResult,
    load_tuned,
    pareto_front,
    read_top_of,
    save_tuned,
    tier_to_dict,
)
from cascader.tuning.search import ReadingSpeed, SearchSpace, split_valid, trial_count, tune

__all__ = [
    "READ_TOP",
    "Budget",
    "COSTS",
    "Plan",
    "ReadingSpeed",
    "SearchSpace",
    "Trial",
    "TuningResult",
    "best_reranking",
    "best_sum",
    "tier_to_dict",
    "split_valid",
    "load_tuned",
    "pareto_front",
    "read_top_of",
    "save_tuned",
    "trial_count",
    "tune",
    "tune_alpha",
]
