"""The budgets that a person can choose from: the best that was tried for what it costs, ready to answer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from cascader.cascade import Cascade
from cascader.graph import Queries
from cascader.progress import progress
from cascader.runs import Predictor, Run
from cascader.serve.counting_scorer import Counted
from cascader.tuning import Trial

MOST_STOPS = 6


@dataclass(frozen=True)
class Stop:
    """What answers within a budget."""

    pairs: int  # that it reads for a question, on average, rounded up
    valid_mrr: float | None  # None: there is no valid
    seconds: float  # that a question is predicted to take
    answering: Predictor

    @property
    def tiers(self) -> list[str]:
        """The tiers' names, the first included."""
        cascade = self.answering.cascade
        return [cascade.name, *(tier.name for tier in cascade.tiers)]


def stops_of(run: Run) -> list[Stop]:
    """The stops of a run, cheapest first; what was never tuned or calibrated is so now."""
    if len(run.tiers) == 1 or len(run.kg.valid) == 0:
        answering = run.answering()
        training = run.kge.about().get("training") or {}
        has_mrr = answering.calibration is not None
        return [Stop(0, training.get("valid_mrr") if has_mrr else None, _seconds_alone(answering), answering)]
    trials = thinned(frontier(run.tuned().trials))
    counted: dict[int, Counted] = {}
    stops: list[Stop] = []
    with progress("calibrating budgets", total=len(trials), unit="budgets") as advance:
        for trial in trials:
            answering = run.calibrated(_counted(trial.cascade, counted))
            # What was predicted is for many questions at once; one alone takes what the first tiers take, at least.
            alone = stops[0].seconds if stops else _seconds_alone(answering)
            seconds = alone + max(trial.seconds_per_query - trials[0].seconds_per_query, 0.0)
            stops.append(Stop(ceil(trial.pairs_per_query), trial.mrr, seconds, answering))
            advance(1)
    return stops


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that none beats for as many pairs or fewer, cheapest first; of equals when rounded up, the best."""
    best: dict[int, Trial] = {}
    highest = -np.inf
    for trial in sorted(trials, key=lambda trial: (trial.pairs_per_query, -trial.mrr)):
        if trial.mrr > highest:
            highest = trial.mrr
            best[ceil(trial.pairs_per_query)] = trial
    return list(best.values())


def thinned(trials: Sequence[Trial], most: int = MOST_STOPS) -> list[Trial]:
    """At most so many of them, the first and the last among them."""
    places = np.linspace(0, len(trials) - 1, min(most, len(trials))).round().astype(int)
    return [trials[place] for place in places]


def within_pairs(stops: Sequence[Stop], pairs: float) -> int:
    """The best stop that reads at most so many pairs; the cheapest where none does."""
    return max((i for i, stop in enumerate(stops) if stop.pairs <= pairs), default=0)


def within_seconds(stops: Sequence[Stop], seconds: float) -> int:
    """The best stop that is predicted to take at most so long; the cheapest where none is."""
    return max((i for i, stop in enumerate(stops) if stop.seconds <= seconds), default=0)


def _counted(cascade: Cascade, counted: dict[int, Counted]) -> Cascade:
    """The same cascade, whose stored tiers say which pairs were new; the cascades share them."""
    tiers = tuple(replace(tier, scorer=Counted.shared(tier.scorer, counted)) for tier in cascade.tiers)
    return Cascade(cascade.first, tiers, name=cascade.name)


def _seconds_alone(answering: Predictor) -> float:
    """How long one question takes; the first of two also warms up."""
    query = Queries(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32), np.ones(1, dtype=bool))
    for _ in range(2):
        started = time.perf_counter()
        list(answering.answered(query))
    return time.perf_counter() - started
