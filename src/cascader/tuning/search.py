"""Choose tiers, pruners and weights on valid by replaying scores that were recorded once."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from cascader.cascade import Cascade, Fusion, Pruned, Scale, Tier, mask_known
from cascader.cascade.alphas import ALPHAS, TunedBlend, best_reranking, best_sum
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
from cascader.display import progress
from cascader.errors import DataError, SettingsError
from cascader.evaluation.protocol import mean_reciprocal_rank, reciprocal_ranks
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries, Triples
from cascader.scoring import StoredScorer
from cascader.scoring.scorer import Scorer
from cascader.tuning.result import READ_TOP, Trial, TuningResult, chance_of
from cascader.tuning.sample import Sample, folds_of
from cascader.tuning.weights import add_in_order

_QUESTIONS_AT_ONCE = 256
#: How many short pairs, and how many long ones, are read to measure the speed; a scorer may ask for more.
_PAIRS_TO_MEASURE = 192


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
REPLAYS_PER_TRIAL = 2  #: for estimating the time of tuning
_FUSIONS = [Fusion(scale, pruned) for scale in get_args(Scale) for pruned in get_args(Pruned)]
#: What is searched: all that we know of, or what the paper searches (Section 4.3): one alpha for both sides of each
#: tier, Eq. 2 to the letter, static or dynamic pruning, any of the later tiers, and the best on valid wins.
SearchSpace = Literal["ours", "paper"]
#: The most memory for a tier's recorded scores: on large graphs, a sample of valid is enough.
_RECORD_BYTES = 256 << 20


def tune(
    cascade: Cascade, kg: KnowledgeGraph, *, read_top: int = READ_TOP, seed: int = 0, space: SearchSpace = "ours"
) -> TuningResult:
    """Try the tiers with different weights, pruners and fusions; those of `cascade` are ignored.

    Tiers that score every entity are added up in order, with weights that are fitted to all of them at once. A tier
    that reads pairs then scores the `read_top` best candidates of each valid question once, and all trials look its
    scores up. Pruners learn from one half of valid; their coverage is measured on the other half. A tier is used only
    if its gain is beyond chance. `space="paper"` searches what the paper does, with one alpha per tier, instead.

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
    return TuningResult(tuple(_SEARCHES[space](cascade, kg, seed).trials(read_top)))


@dataclass(frozen=True)
class ReadingSpeed:
    """How long reading takes: a time per pair, and a time per token."""

    seconds_per_pair: float
    seconds_per_token: float

    def seconds(self, pairs: float, tokens: float) -> float:
        """Estimate the time for a number of pairs and their tokens in all."""
        return pairs * self.seconds_per_pair + tokens * self.seconds_per_token

    @classmethod
    def measure(cls, scorer: Scorer, queries: Queries, candidates: Candidates) -> "ReadingSpeed":
        """Measure the speed on some of the shortest and some of the longest pairs, with a line through the two."""
        order = np.argsort(read_tokens(scorer, queries, candidates), kind="stable")
        count = getattr(scorer, "pairs_to_measure", _PAIRS_TO_MEASURE)
        ends = order[:count], order[-count:]
        # Counted again: a text that several pairs share is charged to the first of those that are read now.
        (short, short_time), (long, long_time) = (
            (read_tokens(scorer, queries, some).mean(), _seconds_per_pair(scorer, queries, some))
            for some in (_only(candidates, places) for places in ends)
        )
        if long - short < 1 or long_time <= short_time:  # the length explains nothing
            return cls(float((short_time + long_time) / 2), 0.0)
        # A line that makes short pairs free is noise: at its steepest, it passes through the origin.
        slope = min((long_time - short_time) / (long - short), long_time / long)
        return cls(float(long_time - slope * long), float(slope))


def _only(candidates: Candidates, places: IntArray) -> Candidates:
    wanted = np.zeros(len(candidates.ids), dtype=bool)
    wanted[places] = True
    return candidates.where(wanted)


def _seconds_per_pair(scorer: Scorer, queries: Queries, candidates: Candidates) -> float:
    times = []
    for _ in range(2):  # the first also warms up
        started = time.perf_counter()
        scorer.score(queries, candidates)
        times.append(time.perf_counter() - started)
    return min(times) / max(len(candidates.ids), 1)


def read_tokens(scorer: Scorer, queries: Queries, candidates: Candidates) -> IntArray:
    """Count the tokens that are read for each pair, or one per pair if the scorer cannot count them."""
    count = getattr(scorer, "token_counts", None)
    return count(queries, candidates) if count else np.ones(len(candidates.ids), dtype=np.int64)


@dataclass(frozen=True)
class _Reader:
    """A tier that reads pairs, with its stored scores and its speed."""

    tier: Tier
    stored: StoredScorer
    speed: ReadingSpeed


class _Search:
    """The state that all trials share: recorded scores, and the two halves of valid."""

    fusions: Sequence[Fusion] = _FUSIONS
    alphas: FloatArray | None = None  # those that suit the scales of both tiers
    alphas_by_side = True

    def __init__(self, cascade: Cascade, kg: KnowledgeGraph, seed: int) -> None:
        self._kg = kg
        known = kg.known_before("valid")
        self._filter = kg.known()
        learning, checking = split_valid(kg, seed)
        both = np.unique(np.concatenate([learning, checking]), axis=0)
        self._learning, self._checking, self._both = (
            Queries.from_triples(triples).with_known(known) for triples in (learning, checking, both)
        )
        self._triple_of = np.tile(np.arange(len(both)), 2)  # each triple asks for its tail, then for its head
        self._fold_of = folds_of(self._triple_of)
        self._reading = [tier for tier in cascade.tiers if tier.reads_pairs]
        dense = {tier.name: tier.scorer for tier in cascade.tiers if not tier.reads_pairs}
        self._scorers = {cascade.name: cascade.first, **dense}
        self._recorded = {name: RecordedScorer(scorer, self._both, kg) for name, scorer in self._scorers.items()}

    def trials(self, read_top: int) -> Iterator[Trial]:
        """Yield sums of tiers that score all entities, then rerankings of the best sum."""
        sums = list(self._sums())
        yield from sums
        for base in self._bases(sums):
            for tier in self._reading:
                yield from self._reranked(base, self._reader(tier, base, read_top), read_top)

    def _bases(self, sums: list[Trial]) -> list[Trial]:
        """Choose the sums whose candidates are read: the last one that earns its cost."""
        return [trial for trial in sums if trial.earns_its_cost][-1:]

    # Sums.

    def _sums(self) -> Iterator[Trial]:
        """Yield the first tier, then the sums with one more tier at a time."""
        for found in add_in_order(Sample.collect(list(self._scorers.values()), self._kg)):
            yield self._sum(found.cascade(self._scorers), found.p_value)

    def _sum(self, cascade: Cascade, p_value: float | None) -> Trial:
        """Replay a sum of tiers, and add up what they cost."""
        seconds = sum(self._recorded[name].seconds_per_question for name in cascade.scorers)
        mrr = mean_reciprocal_rank(self._replay(cascade), self._both, self._filter)
        return Trial(cascade, mrr, 0.0, seconds, p_value=p_value)

    # Reranking.

    def _reader(self, tier: Tier, base: Trial, read_top: int) -> _Reader:
        """Let a tier read every pair that any trial may need, and measure its speed."""
        stored = tier.scorer if isinstance(tier.scorer, StoredScorer) else StoredScorer(tier.scorer, self._kg)
        questions = self._both.unique()[0]
        kept = self._kept(base, TopK(read_top), questions)
        stored.score(questions, kept)
        return _Reader(tier, stored, ReadingSpeed.measure(stored.scorer, questions, kept))

    def _reranked(self, base: Trial, reader: _Reader, read_top: int) -> Iterator[Trial]:
        """Try every pruner with its own best alphas; its gain is tested with alphas chosen on other triples."""
        earlier = self._replay(base.cascade)
        before = reciprocal_ranks(earlier, self._both, self._filter)
        fusion = self._best_fusion(earlier, reader, read_top)
        pruners = self._pruners(earlier, read_top)
        with progress("trying pruners", total=len(pruners), unit="pruners") as advance:
            for keep in pruners:
                found = self._blend(earlier, reader, keep, fusion)
                p_value = self._chance(found.held_out(self._fold_of) - before)
                tier = replace(reader.tier, alpha=found.alpha, keep=keep, fusion=fusion)
                yield replace(self._costed(base, reader, tier), mrr=found.mrr, p_value=p_value)
                advance(1)

    def _best_fusion(self, earlier: Cascade, reader: _Reader, read_top: int) -> Fusion:
        """Choose the fusion that is best when the most pairs are read."""

        def mrr(fusion: Fusion) -> float:
            return float(self._blend(earlier, reader, TopK(read_top), fusion).held_out(self._fold_of).mean())

        return max(self.fusions, key=mrr)

    def _blend(self, earlier: Cascade, reader: _Reader, keep: Pruner, fusion: Fusion) -> TunedBlend:
        best = partial(best_reranking, by_side=self.alphas_by_side, alphas=self.alphas)
        return best(earlier, reader.stored, self._kg, self._both, keep, fusion)

    def _chance(self, gains: FloatArray) -> float | None:
        """How probable the gains of a reranking would be by chance."""
        return chance_of(gains, self._triple_of)

    def _costed(self, base: Trial, reader: _Reader, tier: Tier) -> Trial:
        """A trial with its costs and its coverage, but no figures yet."""
        questions = self._both.unique()[0]
        assert tier.keep is not None  # noqa: S101 - it reads pairs
        kept = self._kept(base, tier.keep, questions)
        tokens = float(read_tokens(reader.stored.scorer, questions, kept).sum())
        seconds = base.seconds_per_query + reader.speed.seconds(len(kept.ids), tokens) / len(questions)
        cascade = Cascade(base.cascade.first, (*base.cascade.tiers, tier), name=base.cascade.name)
        return Trial(cascade, 0.0, len(kept.ids) / len(questions), seconds, self._coverage(base, tier.keep))

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

    def _replay(self, cascade: Cascade) -> Cascade:
        """Build the same sum of tiers with their recorded scores."""
        tiers = tuple(replace(tier, scorer=self._recorded[tier.name]) for tier in cascade.tiers)
        return Cascade(self._recorded[cascade.name], tiers, name=cascade.name)

    def _kept(self, base: Trial, keep: Pruner, questions: Queries) -> Candidates:
        """Return the candidates that a pruner keeps after a sum of tiers."""
        scores = self._replay(base.cascade).score_all(questions)
        return keep.keep(questions, mask_known(scores, questions))


class _PaperSearch(_Search):
    """The paper's search space; nothing is pruned before a tier that scores every entity, as in its main results."""

    fusions = (Fusion("raw", "unchanged"),)
    alphas = ALPHAS
    alphas_by_side = False

    def _bases(self, sums: list[Trial]) -> list[Trial]:
        """Try every choice of language models: a tier that reads pairs may follow any of the sums."""
        return sums

    def _sums(self) -> Iterator[Trial]:
        """Yield the first tier, then the sums with one more tier at a time, each with one alpha."""
        (name, first), *others = self._scorers.items()
        cascade = Cascade(first, name=name)
        yield self._sum(cascade, None)
        for name, scorer in others:
            both = self._replay(cascade), self._recorded[name]
            found = best_sum(*both, self._kg, self._both, by_side=False, alphas=ALPHAS)
            cascade = cascade.then(scorer, alpha=found.alpha, name=name)
            yield self._sum(cascade, None)

    def _chance(self, gains: FloatArray) -> None:
        """The paper asks for no proof of a gain."""

    def _pruners(self, earlier: Cascade, read_top: int) -> list[Pruner]:
        """Build static and dynamic pruners for each quantile."""
        examples = Examples.collect(score_in_blocks(earlier, self._learning), "compact")
        static, dynamic = StaticTopK(0.5).fit_examples(examples), DynamicTopK(0.5).fit_examples(examples)
        both = [(static.with_quantile(quantile), dynamic.with_quantile(quantile)) for quantile in QUANTILES]
        return [Capped(read_top, pruner) for pair in both for pruner in pair]


_SEARCHES: dict[SearchSpace, type[_Search]] = {"ours": _Search, "paper": _PaperSearch}


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
