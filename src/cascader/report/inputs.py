"""What a report is computed from, with the scores of a valid sample recorded once for all sections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cascader.cascade import Alpha, Cascade, Tier, mask_known
from cascader.cascade.pruners import Capped, Pruner, TopK
from cascader.evaluation import Evaluation
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning import Trial, TuningResult
from cascader.tuning.calibration import Calibration
from cascader.tuning.search import RecordedScorer, split_valid

#: At most this many valid triples are replayed.
_SAMPLE_TRIPLES = 300
#: A tier that reads pairs is asked about this many candidates where tuning never asked it.
_DEFAULT_READ_TOP = 20


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """Everything that the sections of a report are computed from."""

    kg: KnowledgeGraph
    scorers: Mapping[str, Scorer]  # by tier, the first tier first
    tuned: TuningResult | None  # None: there was no valid split to tune on
    evaluations: Sequence[Evaluation]
    models: Mapping[str, Mapping[str, Any]]  # by tier, how each model describes itself
    seed: int  # the seed that tuning split valid with
    calibration: Calibration | None = None  # None: answers have no probabilities

    # The trials.

    @property
    def first(self) -> str:
        """The name of the first tier."""
        return next(iter(self.scorers))

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every cascade that was tried on valid, the first tier alone first."""
        return () if self.tuned is None else self.tuned.trials

    @property
    def why_no_choice(self) -> str:
        """Why there are no trials to choose between."""
        if self.tuned is None:
            return "There are no valid triples, so nothing was tuned."
        return "The run has only one tier, so there was nothing to choose from."

    def tiers_of(self, trial: Trial) -> list[str]:
        """The names of a trial's tiers, as the run calls them."""
        return [self.first, *(tier.name for tier in trial.cascade.tiers)]

    def describe_trial(self, trial: Trial) -> dict[str, Any]:
        """A trial's tiers and last pruner, its accuracy and its costs."""
        keep = trial.cascade.tiers[-1].keep if trial.cascade.tiers else None
        figures = trial.as_dict()
        return {
            "tiers": self.tiers_of(trial),
            "kind": kind_of(keep),
            "pruner": describe_pruner(keep),
            **{name: figures[name] for name in ("valid_mrr", "pairs_per_query", "seconds_per_query")},
        }

    def best_joined(self) -> Trial | None:
        """The best trial whose last tier reads pairs, or else the best of several tiers; None if there is neither."""
        joined = [trial for trial in self.trials if trial.cascade.tiers]
        reading = [trial for trial in joined if trial.cascade.tiers[-1].keep is not None]
        return max(reading or joined, key=_merit, default=None)

    def like(self, trial: Trial) -> list[Trial]:
        """Every trial with the same tiers, the given one included."""
        return [other for other in self.trials if self.tiers_of(other) == self.tiers_of(trial)]

    @cached_property
    def read_top(self) -> dict[str, int]:
        """For each tier that reads pairs, the largest number of candidates that it was asked about."""
        found: dict[str, int] = {}
        for tier in (tier for trial in self.trials for tier in trial.cascade.tiers):
            if limit := candidate_limit(tier.keep):
                found[tier.name] = max(found.get(tier.name, 0), limit)
        reading = [name for name, scorer in self.scorers.items() if isinstance(scorer, StoredScorer)]
        return {**dict.fromkeys(reading, _DEFAULT_READ_TOP), **found}

    # The replay.

    @cached_property
    def queries(self) -> Queries:
        """A sample of the half of valid that no pruner has learned from; its pairs were read during tuning."""
        _, checking = split_valid(self.kg, self.seed)
        return Queries.from_triples(checking[:_SAMPLE_TRIPLES]).with_known(self.kg.known_before("valid"))

    @cached_property
    def filter(self) -> KnownAnswers:
        """What is filtered out when the gold answers of valid are ranked."""
        return self.kg.known()

    @cached_property
    def recorded(self) -> dict[str, Scorer]:
        """The tiers with their scores of `queries` recorded: whole rows, or the pairs that a reading tier has read."""
        return {name: self._recorded(name, scorer) for name, scorer in self.scorers.items()}

    def _recorded(self, name: str, scorer: Scorer) -> Scorer:
        if isinstance(scorer, StoredScorer):
            return scorer
        if name in self.read_top:
            return StoredScorer(scorer, self.kg)
        return RecordedScorer(scorer, self.queries, self.kg)

    def replay(self, tiers: Sequence[Tier]) -> Cascade:
        """The first tier followed by these, on recorded scores."""
        exchanged = tuple(replace(tier, scorer=self.recorded[tier.name]) for tier in tiers)
        return Cascade(self.recorded[self.first], exchanged)

    def replay_with_alpha(self, trial: Trial, alpha: Alpha) -> Cascade:
        """A trial on recorded scores, with another weight for its last tier."""
        *earlier, last = trial.cascade.tiers
        return self.replay([*earlier, replace(last, alpha=alpha)])

    def read(self, reader: str, questions: Queries) -> Candidates:
        """The first tier's candidates that a reading tier has read."""
        scores = self.recorded[self.first].score_all(questions)
        return TopK(self.read_top[reader]).keep(questions, mask_known(scores, questions))

    def scores_read(self, name: str, questions: Queries) -> FloatArray:
        """A tier's scores, -inf for every entity that it has not read; shape (questions, entities)."""
        if name not in self.read_top:
            return self.recorded[name].score_all(questions)
        candidates = self.read(name, questions)
        scores = np.full((len(questions), len(self.kg.entities)), -np.inf, dtype=np.float32)
        scores[candidates.rows, candidates.ids] = self.recorded[name].score(questions, candidates)
        return scores


def _merit(trial: Trial) -> tuple[float, float]:
    """Accuracy first; among trials that differ only by rounding, the fastest."""
    return round(trial.mrr, 6), -trial.seconds_per_query


# What is asked of a pruner; a kind that the report has never heard of is just one more.


def uncapped(pruner: Pruner) -> Pruner:
    """The pruner itself, without the limit that tuning puts on it."""
    return pruner.pruner if isinstance(pruner, Capped) else pruner


def kind_of(pruner: Pruner | None) -> str:
    """The kind of a pruner, such as "static" or "conformal"; "everyone" without one. Limits do not count."""
    return "everyone" if pruner is None else uncapped(pruner).kind


def describe_pruner(pruner: Pruner | None) -> str:
    """Describe a pruner in a few words.

    >>> from cascader.cascade.pruners import DynamicTopK, TopK
    >>> describe_pruner(TopK(50)), describe_pruner(Capped(100, DynamicTopK(0.9)))
    ('the best 50', 'dynamic, quantile 0.9, at most 100')
    """
    return "everyone" if pruner is None else str(pruner)


def candidate_limit(pruner: Pruner | None) -> int:
    """How many candidates a pruner keeps at most; 0 if it sets no limit."""
    limit: Any = None if pruner is None else pruner.as_dict().get("k")
    return limit if isinstance(limit, int) else 0


def target_share(pruner: Pruner) -> float | None:
    """The share of gold answers that a pruner is meant to keep; None if it has no such target."""
    settings = pruner.as_dict()
    share: float | None = settings.get("coverage", settings.get("quantile"))
    return share
