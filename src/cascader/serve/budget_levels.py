"""The budgets that a client can choose from: the best cascade at each cost, ready to answer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from cascader.cascade import Cascade
from cascader.graph import KnowledgeGraph, Queries
from cascader.progress import progress
from cascader.runs import Predictor, Run
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.serve.counting_scorer import CountingScorer
from cascader.tuning import Trial, pareto_front

MAX_LEVELS = 6


@dataclass(frozen=True)
class BudgetLevel:
    """A budget and the predictor that answers within it."""

    pairs: int  # read per question, on average, rounded up
    valid_mrr: float | None  # None: there is no valid split
    predicted_seconds: float  # per question
    predictor: Predictor

    @property
    def tiers(self) -> list[str]:
        """The names of the tiers, the first included."""
        cascade = self.predictor.cascade
        return [cascade.name, *(tier.name for tier in cascade.tiers)]


def budget_levels(run: Run) -> list[BudgetLevel]:
    """The levels of a run, cheapest first; tunes and calibrates whatever has not been yet."""
    if len(run.tiers) == 1 or len(run.kg.valid) == 0:
        return [_single_level(run)]
    trials = choose_trials(run.tuned().trials)
    counting: dict[int, CountingScorer] = {}
    levels: list[BudgetLevel] = []
    with progress("calibrating budgets", total=len(trials), unit="budgets") as advance:
        for trial in trials:
            predictor = run.calibrated(_counted(trial.cascade, counting, run.kg))
            # Tuning predicts the time of many questions at once; one alone takes at least as long as the first tiers.
            alone = levels[0].predicted_seconds if levels else _seconds_alone(predictor)
            seconds = alone + max(trial.seconds_per_query - trials[0].seconds_per_query, 0.0)
            levels.append(BudgetLevel(ceil(trial.pairs_per_query), trial.mrr, seconds, predictor))
            advance(1)
    return levels


def _single_level(run: Run) -> BudgetLevel:
    predictor = run.predictor()
    valid_mrr = next(iter(run.tiers.values())).history_.best_valid if predictor.calibration is not None else None
    return BudgetLevel(0, valid_mrr, _seconds_alone(predictor), predictor)


def choose_trials(trials: Sequence[Trial], most: int = MAX_LEVELS) -> list[Trial]:
    """At most so many trials of the Pareto front, each with its own number of pairs; the first and last are kept."""
    by_pairs = {ceil(trial.pairs_per_query): trial for trial in pareto_front(trials)}  # the best of equals comes last
    front = list(by_pairs.values())
    places = np.linspace(0, len(front) - 1, min(most, len(front))).round().astype(int)
    return [front[place] for place in places]


def within_pairs(levels: Sequence[BudgetLevel], pairs: float) -> int:
    """The place of the best level that reads at most so many pairs; the cheapest if none does."""
    return max((i for i, level in enumerate(levels) if level.pairs <= pairs), default=0)


def within_seconds(levels: Sequence[BudgetLevel], seconds: float) -> int:
    """The place of the best level that is predicted to take at most so long; the cheapest if none is."""
    return max((i for i, level in enumerate(levels) if level.predicted_seconds <= seconds), default=0)


def _counted(cascade: Cascade, counting: dict[int, CountingScorer], kg: KnowledgeGraph) -> Cascade:
    """The same cascade with stored tiers that count their new pairs; all cascades share these scorers."""

    def shared(scorer: Scorer) -> Scorer:
        if not isinstance(scorer, StoredScorer):
            return scorer
        if id(scorer) not in counting:
            counting[id(scorer)] = CountingScorer(scorer, kg)
        return counting[id(scorer)]

    tiers = tuple(replace(tier, scorer=shared(tier.scorer)) for tier in cascade.tiers)
    return Cascade(cascade.first, tiers, name=cascade.name)


def _seconds_alone(predictor: Predictor) -> float:
    """How long one question takes, after another to warm up."""
    query = Queries(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32), np.ones(1, dtype=bool))
    for _ in range(2):
        started = time.perf_counter()
        list(predictor.answer(query))
    return time.perf_counter() - started
