"""What a pruner learns from: scores in which the gold answers' places are known."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cascader.errors import DataError
from cascader.evaluation.protocol import iter_blocks
from cascader.evaluation.ranks import Ranks, rank_golds
from cascader.graph import Candidates, FloatArray, KnownAnswers, Queries
from cascader.scoring.scorer import Scorer


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """A block of queries with their golds, and the scores among which the golds stand.

    >>> queries = Queries(np.array([0]), np.array([0]), np.array([True]), golds=np.array([2]))
    >>> seen = ScoredQueries(queries, np.array([[5.0, -np.inf, 3.0, 3.0]]))
    >>> seen.ranks.tolist(), seen.worst_ranks.tolist()
    ([2.5], [3.0])
    """

    queries: Queries
    scores: FloatArray  # (queries, entities), known facts other than the gold itself being -inf

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.queries):
            raise DataError(
                f"scores of shape {self.scores.shape} for {len(self.queries):,} queries, expected a row for each query."
            )

    @cached_property
    def ranks(self) -> FloatArray:
        """The golds' ranks among what is not masked, the mean rank where they tie; shape (queries,)."""
        return self._ranks.mean

    @cached_property
    def worst_ranks(self) -> FloatArray:
        """How many candidates must be kept for each gold to be among them, however ties fall; shape (queries,).

        Infinite for a gold that is masked itself: it is never kept.
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

    What the queries say is known is masked, as it is when the pruner is at work: train, if it learns on valid. Other
    answers of valid then stand in a gold's way, as other answers of test will.
    """
    known = queries.known
    if known is None:
        raise DataError("these queries do not say what is known. Ask with queries.with_known(kg.known_before(split)).")
    for block in iter_blocks(queries, known, "learning what to keep"):
        scores = scorer.score_all(block.questions)
        asking = queries[block.places]
        # A question with many golds has a row for each: no more of them at once than the block has questions.
        size = len(block.questions)
        for start in range(0, len(asking), size):
            some = asking[start : start + size]
            yield ScoredQueries(some, _masked(scores[block.rows[start : start + size]], some, known))


def _masked(scores: FloatArray, queries: Queries, known: KnownAnswers) -> FloatArray:
    """The same array, in which known answers other than the gold are -inf."""
    answers = known.of(queries)
    others = answers.ids != queries.required_golds()[answers.rows]
    scores[answers.rows[others], answers.ids[others]] = -np.inf
    return scores
