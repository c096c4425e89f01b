"""The rank of each gold answer among all entities, raw and filtered, with ties counted in three ways."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of gold answers, 1 being the best.

    `optimistic` ranks a gold answer before the entities that it ties with, `pessimistic` after them. `mean` is the
    one to report: the optimistic rank flatters a model that gives everything the same score (arXiv:1911.03903).
    """

    optimistic: FloatArray  # (golds,)
    pessimistic: FloatArray  # (golds,)

    @property
    def mean(self) -> FloatArray:
        """The expected rank if ties are broken at random; shape (golds,)."""
        return (self.optimistic + self.pessimistic) / 2

    @classmethod
    def concatenate(cls, parts: Sequence["Ranks"]) -> "Ranks":
        """The ranks of all parts in one."""
        return cls(
            np.concatenate([part.optimistic for part in parts]),
            np.concatenate([part.pessimistic for part in parts]),
        )

    def __getitem__(self, rows: IntArray) -> "Ranks":
        return Ranks(self.optimistic[rows], self.pessimistic[rows])


@dataclass(frozen=True, eq=False)
class GoldRanks:
    """Ranks in the two usual settings: `filtered` ignores other known answers, `raw` does not."""

    filtered: Ranks
    raw: Ranks


def rank_golds(scores: FloatArray, rows: IntArray, golds: IntArray, known: Candidates) -> GoldRanks:
    """Rank gold answers in a block of dense scores, which is not modified.

    `scores` is (questions, entities). Gold answer i is entity `golds[i]` for question `rows[i]`; the known answers of
    that question, which may include it, are `known[i]`.

    >>> scores = np.array([[10.0, 10.0, 10.0, 11.0, 9.0]])
    >>> ranks = rank_golds(scores, np.array([0]), np.array([0]), Candidates.from_lists([[0, 3]]))
    >>> ranks.raw.mean.tolist(), ranks.filtered.mean.tolist()
    ([3.0], [2.0])
    """
    gold_scores = scores[rows, golds]
    _check_no_nan(scores)
    above, level = _count_all(scores, rows, gold_scores)
    known_above, known_level = _count_known(scores, rows, golds, gold_scores, known)
    return GoldRanks(
        filtered=_ranks(above - known_above, level - known_level),
        raw=_ranks(above, level),
    )


def _ranks(above: IntArray, level: IntArray) -> Ranks:
    """The ranks, given how many entities score higher and how many the same, including the gold answer."""
    return Ranks(optimistic=(above + 1).astype(np.float64), pessimistic=(above + level).astype(np.float64))


def _count_all(scores: FloatArray, rows: IntArray, gold_scores: FloatArray) -> tuple[IntArray, IntArray]:
    """How many entities score higher than, and the same as, each gold answer."""
    above = np.empty(len(rows), dtype=np.int64)
    not_below = np.empty(len(rows), dtype=np.int64)
    # One row at a time: unlike a whole block, it stays in the cache for both counts.
    for i, (row, gold_score) in enumerate(zip(rows, gold_scores, strict=True)):
        above[i] = np.count_nonzero(scores[row] > gold_score)
        not_below[i] = np.count_nonzero(scores[row] >= gold_score)
    return above, not_below - above


def _count_known(
    scores: FloatArray, rows: IntArray, golds: IntArray, gold_scores: FloatArray, known: Candidates
) -> tuple[IntArray, IntArray]:
    """How many known answers other than the gold one score higher than, and the same as, it."""
    owner = known.rows
    others = known.ids != golds[owner]
    owner, ids = owner[others], known.ids[others]
    margins = scores[rows[owner], ids], gold_scores[owner]
    above = np.bincount(owner[np.greater(*margins)], minlength=len(golds))
    level = np.bincount(owner[np.equal(*margins)], minlength=len(golds))
    return above, level


def _check_no_nan(scores: FloatArray) -> None:
    # min() propagates NaN, so one cheap pass finds it. Comparisons with NaN are False and would improve the rank.
    if len(scores) and np.isnan(scores.min()):
        row, entity = np.argwhere(np.isnan(scores))[0]
        raise DataError(
            f"the scorer returned NaN ({np.isnan(scores).sum():,} of {scores.size:,} scores, the first for entity "
            f"{entity} of question {row} in its block). Every entity needs a score; use -inf to rank it last."
        )
