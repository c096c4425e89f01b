"""Choose tiers, pruners and weights on valid by replaying scores that were recorded once."""

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
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries, Triples
from cascader.progress import progress
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning.budget import ReadingSpeed, read_tokens
from cascader.tuning.result import Trial, TuningResult

_QUESTIONS_AT_ONCE = 256


class RecordedScorer:
    """The recorded scores of a scorer for a fixed set of questions."""

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
        """Look up the scores of the queries; shape (queries, entities)."""
        keys = queries.keys(*self._sizes)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        if (self._keys[places] != keys).any():
            raise DataError("there are no recorded scores for this question. Record it, or ask the tier itself.")
        return self._rows[places]

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Look up the scores of the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


#: As in the paper.
QUANTILES = (0.5, 0.75, 0.9, 0.95)
WIDTHS = (5, 10, 20, 50, 100)
#: The most candidates per question that a tier that reads pairs is given.
READ_TOP = 100
#: Counts for estimating the time of tuning: how often two tiers are added up (three scales, alphas per relation, two
#: checks), how often a trial is replayed, and after how many bases pairs are read.
SUMS_PER_TIER, REPLAYS_PER_TRIAL, BASES = 5, 2, 2
_FUSIONS = [Fusion(scale, pruned) for scale in get_args(Scale) for pruned in get_args(Pruned)]
#: The most memory for a tier's recorded scores: on large graphs, a sample of valid is enough.
_RECORD_BYTES = 256 << 20


def tune(cascade: Cascade, kg: KnowledgeGraph, *, read_top: int = READ_TOP, seed: int = 0) -> TuningResult:
    """Try subsets of the later tiers with different pruners, weights and fusions; those of `cascade` are ignored.

    Tiers that score every entity are added up. A tier that reads pairs scores the `read_top` best candidates of each
    valid question once, and all trials look its scores up. Pruners learn from one half of valid; their coverage is
    measured on the other half.

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
        raise DataError(
            f"{kg.name} has no valid triples to tune on. Set alpha and k yourself, or hold some triples out."
        )
    if read_top < 1:
        raise SettingsError(f"read_top is {read_top}, expected at least 1 candidate.")
    return TuningResult(tuple(_Search(cascade, kg, seed).trials(read_top)))


@dataclass(frozen=True)
class _Reader:
    """A tier that reads pairs, with its stored scores and its speed."""

    tier: Tier
    stored: StoredScorer
    speed: ReadingSpeed


class _Search:
    """The state that all trials share: recorded scores, and the two halves of valid."""

    def __init__(self, cascade: Cascade, kg: KnowledgeGraph, seed: int) -> None:
        self._kg = kg
        known = kg.known_before("valid")
        self._filter = kg.known()
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
        """Yield sums of tiers that score all entities, then rerankings of the first tier and of the best sum."""
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
        """Find the best way to add the chosen tiers to the first, one after the other."""
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
        # Alphas per relation are learned on one half of valid, and used only if they help on the other.
        plain, by_relation = (
            cascade.then(later, alpha=alpha, fusion=Fusion(scale), name=name)
            for alpha in (found[scale].alpha, replace(found[scale].alpha, relations=own))
        )
        return by_relation if self._mrr(by_relation, self._checking) > self._mrr(plain, self._checking) else plain

    # Reranking.

    def _reader(self, tier: Tier, bases: Sequence[Trial], read_top: int) -> _Reader:
        """Let a tier read every pair that any trial may need, and measure its speed."""
        stored = tier.scorer if isinstance(tier.scorer, StoredScorer) else StoredScorer(tier.scorer, self._kg)
        questions = self._both.unique()[0]
        for base in bases:
            kept = self._kept(base, TopK(read_top), questions)
            stored.score(questions, kept)
        return _Reader(tier, stored, ReadingSpeed.measure(stored.scorer, questions, kept))

    def _reranked(self, base: Trial, reader: _Reader, read_top: int) -> Iterator[Trial]:
        """Try every pruner with its own best alphas, and with the fusion that is best when the most pairs are read."""
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
        """Compute the share of golds that are kept, on the half of valid that no pruner has learned from."""
        kept = self._kept(base, keep, self._checking)
        return float((kept.ids == self._checking.required_golds()[kept.rows]).sum() / len(self._checking))

    def _pruners(self, earlier: Cascade, read_top: int) -> list[Pruner]:
        """Build pruners with a fixed number of candidates, and for each quantile those that learn from half of valid.

        Two networks serve them all: one trained on that half, and one on half of it, because the conformal guarantee
        needs triples that were not trained on. No pruner keeps more candidates than were recorded.
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
        """Build a cascade of the same tiers with other scorers: the recorded ones, or the real ones."""
        exchanged = tuple(replace(tier, scorer=scorers.get(tier.name, tier.scorer)) for tier in tiers)
        return Cascade(scorers[self._first], exchanged, name=self._first)

    def _kept(self, base: Trial, keep: Pruner, questions: Queries) -> Candidates:
        """Return the candidates that a pruner keeps after a sum of tiers."""
        scores = self._with(self._recorded, base.cascade.tiers).score_all(questions)
        return keep.keep(questions, mask_known(scores, questions))

    def _mrr(self, cascade: Cascade, queries: Queries | None = None) -> float:
        return mean_reciprocal_rank(cascade, self._both if queries is None else queries, self._filter)


def trial_count(read_top: int) -> int:
    """Count the cascades that are tried for one base and one tier that reads pairs: fusions, then pruners."""
    narrower = sum(k < read_top for k in WIDTHS)
    return len(_FUSIONS) + 2 * narrower + 1 + 3 * len(QUANTILES)


def split_valid(kg: KnowledgeGraph, seed: int) -> tuple[Triples, Triples]:
    """Split valid, or as much of it as may be recorded, into two random halves; a single triple is in both."""
    at_most = max(2, _RECORD_BYTES // (2 * 4 * len(kg.entities)))
    shuffled = np.random.default_rng(seed).permutation(kg.valid)[:at_most]
    middle = (len(shuffled) + 1) // 2
    return shuffled[:middle], shuffled[middle:] if len(shuffled) > 1 else shuffled


def _subsets(tiers: Sequence[Tier]) -> list[tuple[Tier, ...]]:
    """List all subsets of the tiers in order, starting with the empty one."""
    return [chosen for size in range(len(tiers) + 1) for chosen in combinations(tiers, size)]
