"""Which tiers, which pruner, which weights: valid chooses, by replaying scores that were recorded once."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import get_args

import numpy as np

from cascader.cascade import Cascade, Fusion, Pruned, Scale, Tier, mask_known
from cascader.cascade.alphas import best_reranking, best_sum, relation_alphas
from cascader.cascade.pruners import (
    BudgetedTopK,
    Capped,
    ConformalTopK,
    DynamicTopK,
    Examples,
    Pruner,
    StaticTopK,
    TopK,
    score_in_blocks,
)
from cascader.errors import DataError, SettingsError
from cascader.evaluation.protocol import known_splits, mean_reciprocal_rank
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries, Triples
from cascader.progress import progress
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning.budget import ReadingSpeed, read_tokens
from cascader.tuning.result import Trial, TuningResult

_QUESTIONS_AT_ONCE = 256


class RecordedScorer:
    """The rows of a scorer for some questions; it knows no others."""

    def __init__(self, scorer: Scorer, queries: Queries, kg: KnowledgeGraph) -> None:
        self._sizes = len(kg.entities), len(kg.relations)
        questions = queries.unique()[0]
        keys = questions.keys(*self._sizes)
        order = np.argsort(keys)
        self._keys = keys[order]
        started = time.perf_counter()
        blocks = [scorer.score_all(block) for block in questions[order].blocks(_QUESTIONS_AT_ONCE)]
        self.seconds_per_question = (time.perf_counter() - started) / max(len(questions), 1)
        self._rows = np.concatenate(blocks)  # (questions, entities)

    def score_all(self, queries: Queries) -> FloatArray:
        """The rows of the queries; shape (queries, entities)."""
        keys = queries.keys(*self._sizes)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        if (self._keys[places] != keys).any():
            raise DataError("this question was not asked when scores were recorded. Record it, or ask the tier itself.")
        return self._rows[places]

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


#: As in the paper.
QUANTILES = (0.5, 0.75, 0.9, 0.95)
WIDTHS = (5, 10, 20, 50, 100)
#: Candidates that a tier that reads pairs is asked about at most.
READ_TOP = 100
#: What the estimates of tuning's time count: how often two tiers are added up to find how (three scales, relations of
#: their own, two checks), how often a trial is replayed, and behind how many bases pairs are read.
SUMS_PER_TIER, REPLAYS_PER_TRIAL, BASES = 5, 2, 2
_FUSIONS = [Fusion(scale, pruned) for scale in get_args(Scale) for pruned in get_args(Pruned)]
#: What the recorded rows of a tier may take: on large graphs, a sample of valid is enough.
_RECORD_BYTES = 256 << 20


def tune(cascade: Cascade, kg: KnowledgeGraph, *, read_top: int = READ_TOP, seed: int = 0) -> TuningResult:
    """Try subsets of the later tiers, pruners, weights and fusions; whatever `cascade` has of these is not used.

    Tiers that score every entity are added up. A tier that reads pairs is asked once about the `read_top` best
    candidates of valid, and all trials look its scores up. Pruners learn from one half of valid; the share of the other
    half's golds that they keep is recorded.

    >>> from cascader import Budget, Cascade, ComplEx, Frequency, KnowledgeGraph, tune
    >>> facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(4) for j in range(4)]
    >>> kg = KnowledgeGraph.from_triples(facts[:12], valid=facts[12:])
    >>> tuned = tune(Cascade(ComplEx(dim=4, epochs=2).fit(kg)).then(Frequency().fit(kg)), kg)
    >>> [trial.tiers for trial in tuned.trials]
    [('complex',), ('complex', 'frequency')]
    >>> tuned.plan(Budget(pairs=0), query_count=10).pairs
    0.0
    """
    if len(kg.valid) == 0:
        raise DataError(f"{kg.name} has no valid triples to tune on. Give alpha and k yourself, or hold some back.")
    if read_top < 1:
        raise SettingsError(f"read_top is {read_top}, expected at least 1 candidate.")
    return TuningResult(tuple(_Search(cascade, kg, seed).trials(read_top)))


@dataclass(frozen=True)
class _Reader:
    """A tier that reads pairs, what it has read so far, and how fast it is."""

    tier: Tier
    stored: StoredScorer
    speed: ReadingSpeed


class _Search:
    """What all trials share: recorded scores, and the two halves of valid."""

    def __init__(self, cascade: Cascade, kg: KnowledgeGraph, seed: int) -> None:
        self._kg = kg
        known = kg.known_before("valid")
        self._filter = kg.known(known_splits("valid"))
        learning, checking = split_valid(kg, seed)
        both = np.unique(np.concatenate([learning, checking]), axis=0)
        self._learning, self._checking, self._both = (
            Queries.from_triples(triples).with_known(known) for triples in (learning, checking, both)
        )
        self._first = cascade.name
        self._dense = [tier for tier in cascade.tiers if not tier.reads_pairs]
        self._reading = [tier for tier in cascade.tiers if tier.reads_pairs]
        self._scorers = {self._first: cascade.first, **{tier.name: tier.scorer for tier in self._dense}}
        self._recorded = {name: RecordedScorer(scorer, self._both, kg) for name, scorer in self._scorers.items()}

    def trials(self, read_top: int) -> Iterator[Trial]:
        """Sums of the tiers that score everyone; then, on the first tier and on the best sum, those that read."""
        sums = [self._sum(chosen) for chosen in _subsets(self._dense)]
        yield from sums
        best = max(sums, key=lambda trial: trial.mrr)
        bases = sums[:1] if best is sums[0] else [sums[0], best]
        for tier in self._reading:
            reader = self._reader(tier, bases, read_top)
            for base in bases:
                yield from self._reranked(base, reader, read_top)

    # Sums.

    def _sum(self, chosen: Sequence[Tier]) -> Trial:
        """The best way to add the chosen tiers to the first, one after the other."""
        cascade = Cascade(self._recorded[self._first], name=self._first)
        for tier in chosen:
            cascade = self._added(cascade, tier.name)
        names = [self._first, *(tier.name for tier in chosen)]
        seconds = sum(self._recorded[name].seconds_per_question for name in names)
        return Trial(self._with(self._scorers, cascade.tiers), self._mrr(cascade), 0.0, seconds)

    def _added(self, cascade: Cascade, name: str) -> Cascade:
        later = self._recorded[name]
        found = {scale: best_sum(cascade, later, self._kg, self._both, scale) for scale in get_args(Scale)}
        scale = max(found, key=lambda key: found[key].mrr)
        own = relation_alphas(cascade, later, self._kg, self._learning, scale).relations
        # Learnt on one half of valid, an alpha for each relation must earn its place on the other.
        plain, by_relation = (
            cascade.then(later, alpha=alpha, fusion=Fusion(scale), name=name)
            for alpha in (found[scale].alpha, replace(found[scale].alpha, relations=own))
        )
        return by_relation if self._mrr(by_relation, self._checking) > self._mrr(plain, self._checking) else plain

    # Reranking.

    def _reader(self, tier: Tier, bases: Sequence[Trial], read_top: int) -> _Reader:
        """Ask a tier about all that any trial may want, and see how fast it is."""
        stored = tier.scorer if isinstance(tier.scorer, StoredScorer) else StoredScorer(tier.scorer, self._kg)
        questions = self._both.unique()[0]
        for base in bases:
            kept = self._kept(base, TopK(read_top), questions)
            stored.score(questions, kept)
        return _Reader(tier, stored, ReadingSpeed.measure(stored.scorer, questions, kept))

    def _reranked(self, base: Trial, reader: _Reader, read_top: int) -> Iterator[Trial]:
        """Every pruner with alphas of its own; the way to fuse is the one that is best when the most is read."""
        earlier = self._with(self._recorded, base.cascade.tiers)

        def best(keep: Pruner, fusion: Fusion) -> Trial:
            found = best_reranking(earlier, reader.stored, self._kg, self._both, keep, fusion)
            tier = replace(reader.tier, alpha=found.alpha, keep=keep, fusion=fusion)
            return self._costed(base, reader, tier, found.mrr)

        widest = [best(TopK(read_top), fusion) for fusion in _FUSIONS]
        fusion = max(widest, key=lambda trial: trial.mrr).cascade.tiers[-1].fusion
        pruners = self._pruners(earlier, read_top)
        with progress("trying pruners", total=len(pruners), unit="pruners") as advance:
            for keep in pruners:
                yield best(keep, fusion)
                advance(1)

    def _costed(self, base: Trial, reader: _Reader, tier: Tier, mrr: float) -> Trial:
        questions = self._both.unique()[0]
        assert tier.keep is not None  # noqa: S101 - it reads pairs
        kept = self._kept(base, tier.keep, questions)
        tokens = float(read_tokens(reader.stored.scorer, questions, kept).sum())
        seconds = base.seconds_per_query + reader.speed.seconds(len(kept.ids), tokens) / len(questions)
        cascade = self._with(self._scorers, (*base.cascade.tiers, tier))
        return Trial(cascade, mrr, len(kept.ids) / len(questions), seconds, self._coverage(base, tier.keep))

    def _coverage(self, base: Trial, keep: Pruner) -> float:
        """The share of golds that survive, on the half of valid that no pruner has learnt from."""
        kept = self._kept(base, keep, self._checking)
        return float((kept.ids == self._checking.required_golds()[kept.rows]).sum() / len(self._checking))

    def _pruners(self, earlier: Cascade, read_top: int) -> list[Pruner]:
        """Fixed numbers of candidates, and for each quantile what was learned from half of valid.

        Two networks serve them all: one that has learned from that half, and one from half of it, for the guarantee
        needs triples that taught nothing. Never more than was recorded: what is beyond has not been tried.
        """
        examples = Examples.collect(score_in_blocks(earlier, self._learning), "compact")
        static, dynamic = StaticTopK(0.5).fit_examples(examples), DynamicTopK(0.5).fit_examples(examples)
        budgeted = BudgetedTopK(1).fit_examples(examples, dynamic)
        conformal = ConformalTopK(0.5).fit_examples(examples)
        widths = [k for k in WIDTHS if k < read_top]
        pruners: list[Pruner] = [*(TopK(k) for k in widths), TopK(read_top)]
        pruners += [Capped(read_top, budgeted.with_mean(k)) for k in widths]
        for quantile in QUANTILES:
            learned = (
                static.with_quantile(quantile),
                dynamic.with_quantile(quantile),
                conformal.with_coverage(quantile),
            )
            pruners += [Capped(read_top, pruner) for pruner in learned]
        return pruners

    # Replaying.

    def _with(self, scorers: Mapping[str, Scorer], tiers: Sequence[Tier]) -> Cascade:
        """A cascade of the same tiers, with what was recorded or with the real scorers."""
        exchanged = tuple(replace(tier, scorer=scorers.get(tier.name, tier.scorer)) for tier in tiers)
        return Cascade(scorers[self._first], exchanged, name=self._first)

    def _kept(self, base: Trial, keep: Pruner, questions: Queries) -> Candidates:
        """Whom a pruner keeps of what a sum has scored."""
        scores = self._with(self._recorded, base.cascade.tiers).score_all(questions)
        return keep.keep(questions, mask_known(scores, questions))

    def _mrr(self, cascade: Cascade, queries: Queries | None = None) -> float:
        return mean_reciprocal_rank(cascade, self._both if queries is None else queries, self._filter)


def trial_count(read_top: int) -> int:
    """How many cascades are tried behind one base with a tier that reads pairs: ways to fuse, then pruners."""
    narrower = sum(k < read_top for k in WIDTHS)
    return len(_FUSIONS) + 2 * narrower + 1 + 3 * len(QUANTILES)


def split_valid(kg: KnowledgeGraph, seed: int) -> tuple[Triples, Triples]:
    """Two random halves of valid, or of as much of it as may be recorded; of a single triple, twice the same."""
    at_most = max(2, _RECORD_BYTES // (2 * 4 * len(kg.entities)))
    shuffled = np.random.default_rng(seed).permutation(kg.valid)[:at_most]
    middle = (len(shuffled) + 1) // 2
    return shuffled[:middle], shuffled[middle:] if len(shuffled) > 1 else shuffled


def _subsets(tiers: Sequence[Tier]) -> list[tuple[Tier, ...]]:
    """All choices of tiers in their order, none of them first."""
    return [chosen for size in range(len(tiers) + 1) for chosen in combinations(tiers, size)]
