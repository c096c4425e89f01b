"""What a report is made from, and scores of valid that are recorded once for all analyses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cascader.cascade import Cascade, Tier, mask_known
from cascader.cascade.pruners import Capped, TopK
from cascader.evaluation import Evaluation
from cascader.evaluation.protocol import known_splits
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning import Trial, TuningResult
from cascader.tuning.calibration import Calibration
from cascader.tuning.recorded import RecordedScorer
from cascader.tuning.search import split_valid

#: So many triples of valid are replayed at the most.
_TRIPLES = 300
#: Of so many candidates a tier is asked that reads pairs, where tuning has not asked it of any.
_UNASKED = 20


def _merit(trial: Trial) -> tuple[float, float]:
    """The most accurate first; of those that are equal but for rounding, the cheapest."""
    return round(trial.mrr, 6), -trial.seconds_per_query


@dataclass(frozen=True, eq=False)
class Material:
    """What a report is made from."""

    kg: KnowledgeGraph
    scorers: Mapping[str, Scorer]  # by tier, the first tier first
    tuned: TuningResult | None  # None: there was no valid to tune on
    evaluations: Sequence[Evaluation]
    models: Mapping[str, Mapping[str, Any]]  # what each tier has to tell of itself
    seed: int  # the one that valid was halved with when the cascade was tuned
    calibration: Calibration | None = None  # None: answers have no probabilities

    # What was tried.

    @property
    def first(self) -> str:
        """The name of the first tier."""
        return next(iter(self.scorers))

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that was tried on valid; the first is the first tier alone."""
        return () if self.tuned is None else self.tuned.trials

    def tiers_of(self, trial: Trial) -> list[str]:
        """The names of a trial's tiers, as the run calls them."""
        return [self.first, *(tier.name for tier in trial.cascade.tiers)]

    def best_joined(self) -> Trial | None:
        """The best trial whose last tier reads pairs; else the best of several tiers; None if there is none."""
        joined = [trial for trial in self.trials if trial.cascade.tiers]
        reading = [trial for trial in joined if trial.cascade.tiers[-1].keep is not None]
        return max(reading or joined, key=_merit, default=None)

    def like(self, trial: Trial) -> list[Trial]:
        """The trials of the same tiers, the given one among them."""
        return [other for other in self.trials if self.tiers_of(other) == self.tiers_of(trial)]

    @cached_property
    def read_top(self) -> dict[str, int]:
        """For each tier that reads pairs, of how many candidates it was asked about at the most."""
        found: dict[str, int] = {}
        for tier in (tier for trial in self.trials for tier in trial.cascade.tiers):
            if isinstance(tier.keep, TopK | Capped):
                found[tier.name] = max(found.get(tier.name, 0), tier.keep.k)
        unasked = [name for name, scorer in self.scorers.items() if isinstance(scorer, StoredScorer)]
        return {**dict.fromkeys(unasked, _UNASKED), **found}

    # Replaying.

    @cached_property
    def queries(self) -> Queries:
        """Some of the half of valid that no pruner has learnt from; what reads pairs has read it already."""
        _, checking = split_valid(self.kg, self.seed)
        return Queries.from_triples(checking[:_TRIPLES]).with_known(self.kg.known_before("valid"))

    @cached_property
    def filter(self) -> KnownAnswers:
        """What is filtered when gold answers of valid are ranked."""
        return self.kg.known(known_splits("valid"))

    @cached_property
    def recorded(self) -> dict[str, Scorer]:
        """The tiers with their scores of `queries`: rows where they score everyone, else the pairs that were read."""
        return {name: self._recorded(name, scorer) for name, scorer in self.scorers.items()}

    def _recorded(self, name: str, scorer: Scorer) -> Scorer:
        if isinstance(scorer, StoredScorer):
            return scorer
        if name in self.read_top:
            return StoredScorer(scorer, self.kg)
        return RecordedScorer(scorer, self.queries, self.kg)

    def replayed(self, tiers: Sequence[Tier]) -> Cascade:
        """The first tier and these later ones, on recorded scores."""
        exchanged = tuple(replace(tier, scorer=self.recorded[tier.name]) for tier in tiers)
        return Cascade(self.recorded[self.first], exchanged)

    def read(self, reader: str, questions: Queries) -> Candidates:
        """The candidates that a tier has read of what the first one proposed."""
        scores = self.recorded[self.first].score_all(questions)
        return TopK(self.read_top[reader]).keep(questions, mask_known(scores, questions))

    def scores_among(self, name: str, questions: Queries, candidates: Candidates) -> FloatArray:
        """A tier's scores of some candidates, -inf for all others; shape (questions, entities)."""
        scores = np.full((len(questions), len(self.kg.entities)), -np.inf, dtype=np.float32)
        scores[candidates.rows, candidates.ids] = self.recorded[name].score(questions, candidates)
        return scores
