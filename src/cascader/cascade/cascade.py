"""The cascade, which is itself a scorer, and the steps: what each tier did and cost.

An ensemble is a cascade that prunes nothing between its tiers. Traces and figures are made from the steps, without
running a model again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cascader.cascade.blend import Alpha, Fusion, blend_all, mask_known, rerank
from cascader.cascade.pruners import Pruner
from cascader.display import html_table
from cascader.errors import DataError, SettingsError
from cascader.graph import Candidates, FloatArray, Queries
from cascader.graph.arrays import positions_within
from cascader.scoring import Scorer, reads_pairs


@dataclass(frozen=True, eq=False)
class Step:
    """What a tier did to a block of queries."""

    tier: str
    blended: FloatArray  # (queries, entities) the scores after it
    scores: FloatArray | None  # its own, (queries, entities) or (candidates,); None: it ran out of time
    candidates: Candidates | None  # the candidates it scored; None: all entities
    alpha: FloatArray  # (queries,) the weight of the tiers before it
    calls: int  # the number of scores it computed
    seconds: float
    complete: bool = True  # False: the deadline passed before it was done

    @classmethod
    def of_first(cls, tier: str, scores: FloatArray, seconds: float) -> "Step":
        """Record the first tier, which has nothing to blend with."""
        return cls(tier, scores, scores, None, np.zeros(len(scores), dtype=np.float32), scores.size, seconds)

    @classmethod
    def skipped(cls, tier: str, scores: FloatArray, alpha: FloatArray) -> "Step":
        """Record a tier for which no time was left."""
        return cls(tier, scores, None, Candidates.empty(len(scores)), alpha, 0, 0.0, complete=False)


def pairs_of(steps: list[Step], row: int) -> int:
    """Count the pairs of a query that all tiers together asked for."""
    return sum(int(step.candidates.counts[row]) for step in steps if step.candidates is not None)


@dataclass
class TierUsage:
    """What a tier has cost."""

    queries: int = 0
    calls: int = 0
    seconds: float = 0.0
    cut_short: int = 0  # queries in blocks that the deadline cut short

    def add(self, step: Step) -> None:
        """Add the cost of one step."""
        self.queries += len(step.blended)
        self.calls += step.calls
        self.seconds += step.seconds
        self.cut_short += 0 if step.complete else len(step.blended)


@dataclass
class UsageLog:
    """What all tiers have cost, by name."""

    tiers: dict[str, TierUsage] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Add the cost of one step."""
        self.tiers.setdefault(step.tier, TierUsage()).add(step)

    @property
    def seconds(self) -> float:
        """The seconds that all tiers took together."""
        return sum(usage.seconds for usage in self.tiers.values())


class Deadline:
    """A time limit that starts when it is created; `clock` returns the time in seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not seconds > 0:
            raise SettingsError(f"a time limit of {seconds} seconds leaves no time, expected more than 0.")
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._end


#: With a deadline, this many candidates per query are read, best first, between checks of the clock.
_RANKS_AT_ONCE = 8


@dataclass(frozen=True)
class Tier:
    """A later tier: its scorer, the weight of everything before it, and the pruner that chooses its candidates.

    A tier without an `alpha`, or one that reads pairs without a pruner, has yet to be tuned.
    """

    name: str
    scorer: Scorer
    alpha: Alpha | None = None
    keep: Pruner | None = None  # None: all candidates
    fusion: Fusion = Fusion()

    @property
    def reads_pairs(self) -> bool:
        """Whether it scores only a few candidates rather than every entity."""
        return self.keep is not None or reads_pairs(self.scorer)

    @property
    def weight(self) -> Alpha:
        """The weight of everything before it; an error if none has been chosen."""
        if self.alpha is None:
            raise SettingsError(
                f"the tier {self.name} has no weight yet. Set one, as in then({self.name}, alpha=0.5), or let "
                "valid choose: tune(cascade, kg).best."
            )
        return self.alpha

    def kept(self, queries: Queries, masked: FloatArray) -> Candidates:
        """Choose its candidates from scores (queries, entities) in which known answers are -inf."""
        if self.keep is None:
            raise SettingsError(
                f"the tier {self.name} reads pairs, but has no pruner to choose them. Give it one, as in "
                f"then({self.name}, keep=TopK(50)), or let valid choose: tune(cascade, kg).best."
            )
        return self.keep.keep(queries, masked)

    def __str__(self) -> str:
        settings = {"alpha": self.alpha, "keep": self.keep}
        given = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
        return f"{self.name}({given or 'to be tuned'})"


class Cascade:
    """Scores with a first tier, then blends in each later tier with its alpha.

    `Cascade(first).then(second, alpha=0.7)` is the paper's additive ensemble (Eq. 1). With `keep`, a tier scores only
    the candidates that the pruner keeps (Eq. 2); known answers never take up a place there. A tier without a weight has
    yet to be tuned: `tune(cascade, kg)`. A cascade is immutable: `then` returns a new one.

    >>> from cascader import Cascade, ComplEx, Frequency, KnowledgeGraph, TopK
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> kge = ComplEx(dim=4, epochs=2).fit(kg)
    >>> cascade = Cascade(kge).then(Frequency().fit(kg), alpha=0.5, keep=TopK(2))
    >>> cascade
    Cascade(complex, frequency(alpha=0.5, keep=the best 2))
    >>> for step in cascade.steps(kg.query("aspirin", "treats")):
    ...     print(step.tier, step.calls)  # how many scores each tier computed
    complex 4
    frequency 2
    """

    def __init__(self, first: Scorer, tiers: tuple[Tier, ...] = (), *, name: str = "") -> None:
        self.name = name or name_of(first)  #: of the first tier
        self.first = first
        self.tiers = tiers

    def then(
        self,
        scorer: Scorer,
        *,
        alpha: float | Alpha | None = None,
        keep: Pruner | None = None,
        fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
        name: str = "",
    ) -> "Cascade":
        """Add a tier; `alpha` is the weight of everything before it."""
        weight = None if alpha is None else Alpha.of(alpha)
        tier = Tier(name or name_of(scorer), scorer, weight, keep, fusion)
        return Cascade(self.first, (*self.tiers, tier), name=self.name)

    def pruned_last(self, keep: Pruner) -> "Cascade":
        """Return the same cascade, but its last tier scores only the candidates that `keep` keeps."""
        last = tuple(replace(tier, keep=keep) for tier in self.tiers[-1:])
        return Cascade(self.first, (*self.tiers[:-1], *last), name=self.name)

    def __repr__(self) -> str:
        return f"Cascade({', '.join([self.name, *map(str, self.tiers)])})"

    def _repr_html_(self) -> str:
        rows = [
            [tier.name, str(tier.alpha or "to be tuned"), str(tier.keep or "all"), tier.fusion.scale]
            for tier in self.tiers
        ]
        columns = ["tier", "weight of the tiers before it", "candidates", "scale"]
        return html_table(columns, [[self.name, "", "all", ""], *rows])

    @property
    def scorers(self) -> dict[str, Scorer]:
        """The scorers of all tiers by name, in order."""
        return {self.name: self.first, **{tier.name: tier.scorer for tier in self.tiers}}

    # Scoring.

    def steps(self, queries: Queries, deadline: Deadline | None = None) -> Iterator[Step]:
        """Yield what each tier does to a block of queries, in order; no pairs are read after the deadline."""
        started = time.perf_counter()
        scores = self.first.score_all(queries)
        _check_scores(self.name, scores, (len(queries), *scores.shape[1:]))
        step = Step.of_first(self.name, scores, time.perf_counter() - started)
        yield step
        for tier in self.tiers:
            step = _step(tier, queries, step.blended, deadline)
            yield step

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        *_, last = self.steps(queries)
        return last.blended

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


class MeteredCascade:
    """A cascade that records what its tiers cost, with one deadline for everything it scores."""

    reads_pairs = False

    def __init__(self, cascade: Cascade, deadline: Deadline | None = None) -> None:
        self.name = cascade.name
        self.usage = UsageLog()
        self._cascade, self._deadline = cascade, deadline

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        for step in self._cascade.steps(queries, self._deadline):
            self.usage.add(step)
        return step.blended

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


def _step(tier: Tier, queries: Queries, scores: FloatArray, deadline: Deadline | None) -> Step:
    """Apply a tier to the scores of those before it, (queries, entities)."""
    started, alpha = time.perf_counter(), tier.weight.per_query(queries)
    if deadline and deadline.is_over:
        return Step.skipped(tier.name, scores, alpha)
    if not tier.reads_pairs:
        later = tier.scorer.score_all(queries)
        _check_scores(tier.name, later, scores.shape)
        blended = blend_all(scores, later, alpha, tier.fusion.scale)
        return Step(tier.name, blended, later, None, alpha, later.size, time.perf_counter() - started)
    masked = mask_known(scores, queries)
    kept = tier.kept(queries, masked)
    read, later = _read(tier, queries, kept, deadline)
    _check_scores(tier.name, later, read.ids.shape)
    blended = rerank(scores, masked, read, later, alpha, tier.fusion)
    seconds, complete = time.perf_counter() - started, len(read.ids) == len(kept.ids)
    return Step(tier.name, blended, later, read, alpha, len(read.ids), seconds, complete)


def _read(tier: Tier, queries: Queries, kept: Candidates, deadline: Deadline | None) -> tuple[Candidates, FloatArray]:
    """Score the kept candidates, best first, until the deadline; return those that were read, and their scores."""
    if deadline is None:
        return kept, tier.scorer.score(queries, kept)
    place = positions_within(kept.counts)  # of each candidate in its list
    scores = np.empty(len(kept.ids), dtype=np.float32)
    is_read = np.zeros(len(kept.ids), dtype=bool)
    for first in range(0, int(kept.counts.max(initial=0)), _RANKS_AT_ONCE):
        if deadline.is_over:
            break
        now = (place >= first) & (place < first + _RANKS_AT_ONCE)
        scores[now] = tier.scorer.score(queries, kept.where(now))
        is_read |= now
    return kept.where(is_read), scores[is_read]


def _check_scores(tier: str, scores: FloatArray, expected: tuple[int, ...]) -> None:
    """Report which tier broke the contract, and how: users can write their own."""
    if scores.shape != expected:
        raise DataError(
            f"the tier {tier} returned scores of shape {scores.shape}, expected {expected}: one for each "
            f"{'query and entity' if len(expected) == 2 else 'candidate'}."
        )
    # min() propagates NaN, so one cheap pass finds it.
    if scores.size and np.isnan(scores.min()):
        raise DataError(
            f"the tier {tier} returned NaN for {np.isnan(scores).sum():,} of {scores.size:,} scores. Train it again "
            "with a lower learning_rate, or leave it out."
        )


def name_of(scorer: Scorer) -> str:
    """Return the name of a scorer as a tier."""
    return getattr(scorer, "name", type(scorer).__name__.lower())
