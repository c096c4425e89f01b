"""A cascade is itself a scorer: an ensemble is one in which nothing is pruned between the tiers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascader.cascade.blend import Alpha, Fusion, blend_all, mask_known, rerank
from cascader.cascade.deadline import Deadline
from cascader.cascade.pruners import Pruner
from cascader.cascade.steps import Step, Tally
from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, KnownAnswers, Queries
from cascader.scoring.scorer import Scorer

#: With a clock running, so many candidates of each query are read between two looks at it, the best first.
_RANKS_AT_ONCE = 8


@dataclass(frozen=True)
class Tier:
    """A later tier: what scores, the weight of all that came before it, and which candidates it gets to see."""

    name: str
    scorer: Scorer
    alpha: Alpha
    keep: Pruner | None  # None: all of them
    fusion: Fusion = Fusion()


class Cascade:
    """Scores with a first tier, then with each further tier, blended by its alpha.

    `Cascade(first).then(second, alpha=0.7)` is the paper's additive ensemble (Eq. 1). With `keep`, a tier is only ever
    asked about the candidates that the pruner lets through (Eq. 2); what is `known` never takes a place there. A
    cascade never changes: `then` returns a new one.

    >>> from cascader import Cascade, ComplEx, Frequency, KnowledgeGraph, TopK
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> kge = ComplEx(dim=4, epochs=2).fit(kg)
    >>> cascade = Cascade(kge).then(Frequency().fit(kg), alpha=0.5, keep=TopK(2), name="frequency")
    >>> for step in cascade.steps(kg.query("aspirin", "treats")):
    ...     print(step.tier, step.calls)  # how many scores each tier had to give
    complex 4
    frequency 2
    """

    def __init__(
        self,
        first: Scorer,
        tiers: tuple[Tier, ...] = (),
        *,
        known: KnownAnswers | None = None,
        clock: Deadline | None = None,
        name: str = "",
    ) -> None:
        self.name = name or name_of(first)  #: of the first tier
        self.first = first
        self.tiers = tiers
        self.known = known
        self.clock = clock
        self.tally = Tally()  #: what the tiers have cost so far

    def then(
        self,
        scorer: Scorer,
        *,
        alpha: float | Alpha,
        keep: Pruner | None = None,
        fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
        name: str = "",
    ) -> "Cascade":
        """Add a tier; `alpha` is the weight of all that came before it."""
        tier = Tier(name or name_of(scorer), scorer, Alpha.of(alpha), keep, fusion)
        return self._changed(tiers=(*self.tiers, tier))

    def knowing(self, known: KnownAnswers | None) -> "Cascade":
        """The same cascade, to which other answers are known."""
        return self._changed(known=known)

    def within(self, seconds: float) -> "Cascade":
        """The same cascade with a clock, started now: when the time is up, the ranking stays as it is by then."""
        return self._changed(clock=Deadline(seconds))

    def _changed(self, **changes: Any) -> "Cascade":  # noqa: ANN401 - what __init__ takes
        same = {"first": self.first, "tiers": self.tiers, "known": self.known, "clock": self.clock, "name": self.name}
        return Cascade(**{**same, **changes})

    # Scoring.

    def steps(self, queries: Queries) -> Iterator[Step]:
        """What each tier does to a block of queries, one after the other."""
        started = time.perf_counter()
        scores = self.first.score_all(queries)
        _check_no_nan(self.name, scores)
        step = Step.of_first(self.name, scores, time.perf_counter() - started)
        self.tally.add(step)
        yield step
        for tier in self.tiers:
            step = self._step(tier, queries, step.blended)
            self.tally.add(step)
            yield step

    def _step(self, tier: Tier, queries: Queries, scores: FloatArray) -> Step:
        """Let a tier change the scores of those that came before it, (queries, entities)."""
        started, alpha = time.perf_counter(), tier.alpha.per_query(queries)
        if self.clock and self.clock.is_over:
            return Step.skipped(tier.name, scores, alpha)
        if tier.keep is None:
            later = tier.scorer.score_all(queries)
            _check_no_nan(tier.name, later)
            blended = blend_all(scores, later, alpha, tier.fusion.scale)
            return Step(tier.name, blended, later, None, alpha, later.size, time.perf_counter() - started)
        masked = mask_known(scores, queries, self.known)
        kept = tier.keep.keep(queries, masked)
        read, later = self._read(tier, queries, kept)
        _check_no_nan(tier.name, later)
        blended = rerank(scores, masked, read, later, alpha, tier.fusion)
        seconds, complete = time.perf_counter() - started, len(read.ids) == len(kept.ids)
        return Step(tier.name, blended, later, read, alpha, len(read.ids), seconds, complete)

    def _read(self, tier: Tier, queries: Queries, kept: Candidates) -> tuple[Candidates, FloatArray]:
        """Score what was kept, best first, for as long as there is time: what was read, and its scores."""
        if self.clock is None:
            return kept, tier.scorer.score(queries, kept)
        place = np.arange(len(kept.ids)) - np.repeat(kept.offsets[:-1], kept.counts)  # of a candidate in its list
        scores = np.empty(len(kept.ids), dtype=np.float32)
        is_read = np.zeros(len(kept.ids), dtype=bool)
        for first in range(0, int(kept.counts.max(initial=0)), _RANKS_AT_ONCE):
            if self.clock.is_over:
                break
            now = (place >= first) & (place < first + _RANKS_AT_ONCE)
            scores[now] = tier.scorer.score(queries, kept.where(now))
            is_read |= now
        return kept.where(is_read), scores[is_read]

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        *_, last = self.steps(queries)
        return last.blended

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


def _check_no_nan(tier: str, scores: FloatArray) -> None:
    # min() passes NaN on, so that one cheap pass finds it.
    if scores.size and np.isnan(scores.min()):
        raise DataError(
            f"the tier {tier} gave NaN for {np.isnan(scores).sum():,} of {scores.size:,} scores. Train it again with a "
            "lower learning_rate, or leave it out."
        )


def name_of(scorer: Scorer) -> str:
    """What a tier is called."""
    return getattr(scorer, "name", type(scorer).__name__.lower())
