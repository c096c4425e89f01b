"""The budgets that a page offers: what each costs and answers, and which pairs had to be read."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from cascader.cascade import Cascade
from cascader.display import progress
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.runs import Predictor, Run
from cascader.scoring import PairKeys, ScoreStore, StoredScorer, WriteBehind
from cascader.scoring.scorer import Scorer
from cascader.serve.batcher import Check
from cascader.tuning import Trial, pareto_front

#: Pairs that are read between two checks of whether somebody still waits.
_PAIRS_AT_ONCE = 512


class CountingScorer:
    """Scores as `stored` does and counts the new pairs of each question; new scores reach its files in batches."""

    def __init__(self, stored: StoredScorer, kg: KnowledgeGraph) -> None:
        store = WriteBehind(stored.store) if isinstance(stored.store, ScoreStore) else stored.store
        self._stored = StoredScorer(stored.scorer, kg, store, stored.engine)
        self.new_pairs: Counter[int] = Counter()  #: by the question's key, since it was last cleared
        self.check: Check = lambda: None  #: raises if nobody waits for the scores any longer

    @property
    def numbering(self) -> PairKeys:
        """How pairs are numbered."""
        return self._stored.numbering

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        places, scores = np.arange(len(candidates.ids)), np.empty(len(candidates.ids), dtype=np.float32)
        for start in range(0, len(places), _PAIRS_AT_ONCE):
            self.check()
            now = (places >= start) & (places < start + _PAIRS_AT_ONCE)
            scores[now] = self._score(queries, candidates.where(now))
        return scores

    def _score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        keys = np.unique(self.numbering.of(queries, candidates))
        missing = keys[np.isnan(self._stored.store.find(keys))]
        self.new_pairs.update((missing // self.numbering.entity_count).tolist())
        return self._stored.score(queries, candidates)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        return self._stored.score_all(queries)

    def write(self) -> None:
        """Write the scores that are still in memory only."""
        if isinstance(self._stored.store, WriteBehind):
            self._stored.store.write()


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
    """At most so many trials of the Pareto front, each with its own number of pairs; the first and last are kept.

    Those whose gain may be chance are left out, as when a run chooses.
    """
    earning = [trial for trial in trials if trial.earns_its_cost]
    by_pairs = {ceil(trial.pairs_per_query): trial for trial in pareto_front(earning)}  # the best of equals comes last
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
