"""What a pruner learns from: queries with their scores, the features of those scores, and the golds' ranks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from cascader.errors import DataError
from cascader.evaluation.metrics import Ranks, rank_golds
from cascader.evaluation.protocol import iter_blocks
from cascader.graph import Array, BoolArray, Candidates, FloatArray, IntArray, KnownAnswers, Queries, Triples
from cascader.scoring.scorer import Scorer

FeatureName = Literal["compact", "scores"]

#: The gaps between the scores at these ranks show how steeply a row falls; the ranks are the same for every graph size.
_RANKS = 2 ** np.arange(11)
_ROWS_AT_ONCE = 64


def describe(queries: Queries, scores: FloatArray, name: FeatureName) -> FloatArray:
    """Compute the features of each query from its own scores alone; shape (queries, features)."""
    featurize = {"compact": _compact, "scores": _sorted_scores}[name]
    # A few rows at a time: copying and sorting them may take several times their memory.
    starts = range(0, len(queries), _ROWS_AT_ONCE)
    parts = [featurize(queries[at : at + _ROWS_AT_ONCE], scores[at : at + _ROWS_AT_ONCE]) for at in starts]
    return np.concatenate(parts) if parts else featurize(queries, scores)


def asked(queries: Queries) -> IntArray:
    """Encode the relation and the side that is asked for as one number; shape (queries,)."""
    return 2 * queries.relations.astype(np.int64) + queries.predicts_tail


def _compact(queries: Queries, scores: FloatArray) -> FloatArray:
    """Describe how far the best stand out, the entropy of the top, how many are not masked, and the side."""
    standard = _standardized(scores)
    alive = np.isfinite(standard).sum(axis=1)
    top = _best(standard, int(_RANKS[-1]))  # (queries, top)
    # If fewer entities are left than a rank asks for, the last one stands in: all gaps after it are 0.
    places = np.minimum(_RANKS, np.maximum(alive, 1)[:, None]) - 1
    at_ranks = _finite(np.take_along_axis(top, places, axis=1))
    gaps = np.log1p(at_ranks[:, :-1] - at_ranks[:, 1:])
    columns = [at_ranks[:, 0], _entropy(_best(scores.astype(np.float64), int(_RANKS[-1]))), np.log1p(alive)]
    return np.column_stack([gaps, *columns, queries.predicts_tail])


def _sorted_scores(queries: Queries, scores: FloatArray) -> FloatArray:
    """Compute the paper's features: all scores, standardized, best first; masked ones count as the lowest."""
    top_candidates = -np.sort(-_standardized(scores), axis=1)
    lowest = np.min(top_candidates, axis=1, where=np.isfinite(top_candidates), initial=np.inf)
    return _finite(np.where(np.isfinite(top_candidates), top_candidates, lowest[:, None])).astype(np.float32)


def _standardized(scores: FloatArray) -> FloatArray:
    """Scale each row to mean 0 and deviation 1 over its unmasked scores; equal scores become 0, masked stay -inf."""
    alive = np.isfinite(scores)
    count = np.maximum(alive.sum(axis=1), 1)
    mean = np.where(alive, scores, 0).sum(axis=1, dtype=np.float64) / count
    centered = np.where(alive, scores - mean[:, None], 0.0)
    deviation = np.sqrt((centered**2).sum(axis=1) / count)
    # Dividing by a deviation that is only rounding noise would amplify it.
    is_flat = deviation <= 1e-6 * np.abs(mean)
    return np.where(alive, centered / np.where(is_flat, np.inf, deviation)[:, None], -np.inf)


def _best(scores: FloatArray, count: int) -> FloatArray:
    """Return the best scores of each row, best first, padded with -inf; shape (queries, count)."""
    missing = max(0, count - scores.shape[1])
    if missing:
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
    return -np.sort(-np.partition(scores, scores.shape[1] - count, axis=1)[:, -count:], axis=1)


def _entropy(best: FloatArray) -> Array:
    """Compute the entropy of the softmax over each row's best scores, in nats; shape (queries,)."""
    exponentials = np.exp(_finite(best - _finite(best[:, :1])) * np.isfinite(best)) * np.isfinite(best)
    shares = exponentials / np.maximum(exponentials.sum(axis=1, keepdims=True), 1)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)


def _finite(values: FloatArray) -> FloatArray:
    """Replace infinities with 0, for rows in which everything is masked."""
    return np.where(np.isfinite(values), values, 0.0)


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """A block of queries with gold answers, and the scores among which the golds are ranked.

    >>> queries = Queries(np.array([0]), np.array([0]), np.array([True]), golds=np.array([2]))
    >>> scored = ScoredQueries(queries, np.array([[5.0, -np.inf, 3.0, 3.0]]))
    >>> scored.ranks.tolist(), scored.worst_ranks.tolist()
    ([2.5], [3.0])
    """

    queries: Queries
    scores: FloatArray  # (queries, entities), -inf for known answers other than the gold

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.queries):
            raise DataError(
                f"scores of shape {self.scores.shape} for {len(self.queries):,} queries, expected a row for each query."
            )

    @cached_property
    def ranks(self) -> FloatArray:
        """The golds' ranks among unmasked entities, the mean rank for ties; shape (queries,)."""
        return self._ranks.mean

    @cached_property
    def worst_ranks(self) -> FloatArray:
        """How many candidates must be kept to keep each gold, however ties are broken; shape (queries,).

        Infinite for a gold that is itself masked: it is never kept.
        """
        gold_scores = self.scores[np.arange(len(self.queries)), self.queries.required_golds()]
        return np.where(gold_scores > -np.inf, self._ranks.pessimistic, np.inf)

    @cached_property
    def _ranks(self) -> Ranks:
        nothing_more = Candidates.empty(len(self.queries))
        rows = np.arange(len(self.queries))
        return rank_golds(self.scores, rows, self.queries.required_golds(), nothing_more).raw


def score_in_blocks(scorer: Scorer, queries: Queries) -> Iterator[ScoredQueries]:
    """Score `queries` one block at a time, each question once.

    The queries' known answers are masked, as they are when the pruner is used: those of train, if it learns on valid.
    Other answers from valid then compete with a gold, just as other answers from test will.
    """
    known = queries.known
    if known is None:
        raise DataError("these queries have no known answers. Use queries.with_known(kg.known_before(split)).")
    for block in iter_blocks(queries, known, "learning what to keep"):
        scores = scorer.score_all(block.questions)
        asking = queries[block.places]
        # A question with many golds has a row for each: yield no more rows at once than the block has questions.
        size = len(block.questions)
        for start in range(0, len(asking), size):
            some = asking[start : start + size]
            yield ScoredQueries(some, _masked(scores[block.rows[start : start + size]], some, known))


def _masked(scores: FloatArray, queries: Queries, known: KnownAnswers) -> FloatArray:
    """Set known answers other than the gold to -inf, in place."""
    answers = known.of(queries)
    others = answers.ids != queries.required_golds()[answers.rows]
    scores[answers.rows[others], answers.ids[others]] = -np.inf
    return scores


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and gold ranks, one row per query, in an order that does not depend on the blocks they came in."""

    features: FloatArray  # (queries, features)
    asked: IntArray  # (queries,) the relation and side as one number
    ranks: FloatArray  # (queries,) the mean rank if the gold ties
    worst_ranks: FloatArray  # (queries,) the rank after everything it ties with
    triples: Triples  # (queries, 3) completed by the golds
    predicts_tail: BoolArray  # (queries,)

    @classmethod
    def collect(cls, blocks: Iterable[ScoredQueries], features: FeatureName) -> "Examples":
        """Collect the examples in one pass over the blocks."""
        parts = [
            (
                describe(block.queries, block.scores, features),
                asked(block.queries),
                block.ranks,
                block.worst_ranks,
                block.queries.triples(),
                block.queries.predicts_tail,
            )
            for block in blocks
            if len(block.queries)
        ]
        if not parts:
            raise DataError("there are no queries to learn k from. Hold some valid triples out, or use TopK(k).")
        if len({part[0].shape[1] for part in parts}) > 1:
            raise DataError("the blocks have scores for different numbers of entities, expected one graph.")
        together = cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return together[np.lexsort((together.predicts_tail, *together.triples.T))]

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, rows: IntArray | BoolArray) -> "Examples":
        return Examples(
            features=self.features[rows],
            asked=self.asked[rows],
            ranks=self.ranks[rows],
            worst_ranks=self.worst_ranks[rows],
            triples=self.triples[rows],
            predicts_tail=self.predicts_tail[rows],
        )

    def split(self, share: float, seed: int) -> tuple["Examples", "Examples"]:
        """Split into two random parts, the second with about `share` of the triples; only the second may be empty.

        Both queries of a triple stay together, so that nothing learned from one part has seen the other.
        """
        triples, triple_of = np.unique(self.triples, axis=0, return_inverse=True)
        order = np.random.default_rng(seed).permutation(len(triples))
        is_second = np.zeros(len(triples), dtype=np.bool_)
        is_second[order[: int(share * len(triples))]] = True
        goes_second = is_second[triple_of.reshape(-1)]
        return self[~goes_second], self[goes_second]
