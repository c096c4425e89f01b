"""The rank of each gold answer among all entities, raw and filtered, with every way to count ties."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where the gold answers stand, 1 being the best.

    `optimistic` puts a gold answer before the entities it ties with, `pessimistic` behind them. `mean` is the
    rank to report: the optimistic one flatters a model that scores everything alike (arXiv:1911.03903).
    """

    optimistic: FloatArray  # (golds,)
    pessimistic: FloatArray  # (golds,)

    @property
    def mean(self) -> FloatArray:
        """The expected rank when ties are broken at random; shape (golds,)."""
        return (self.optimistic + self.pessimistic) / 2

    @classmethod
    def concatenate(cls, parts: Sequence["Ranks"]) -> "Ranks":
        """The ranks of all parts, one after the other."""
        return cls(
            np.concatenate([part.optimistic for part in parts]),
            np.concatenate([part.pessimistic for part in parts]),
        )

    def __getitem__(self, rows: IntArray) -> "Ranks":
        return Ranks(self.optimistic[rows], self.pessimistic[rows])


@dataclass(frozen=True, eq=False)
class GoldRanks:
    """The two settings: `filtered` ignores the other known answers, `raw` ranks the gold answer below them too."""

    filtered: Ranks
    raw: Ranks


def rank_golds(scores: FloatArray, rows: IntArray, golds: IntArray, known: Candidates) -> GoldRanks:
    """Rank gold answers in a block of dense scores, which is read and never written.

    `scores` is (questions, entities); gold answer i is `golds[i]` to question `rows[i]`, whose known answers, itself
    possibly among them, are `known[i]`.

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
    """From how many score higher, and how many the same, the gold answer included."""
    return Ranks(optimistic=(above + 1).astype(np.float64), pessimistic=(above + level).astype(np.float64))


def _count_all(scores: FloatArray, rows: IntArray, gold_scores: FloatArray) -> tuple[IntArray, IntArray]:
    """How many entities score above, and level with, each gold answer."""
    above = np.empty(len(rows), dtype=np.int64)
    not_below = np.empty(len(rows), dtype=np.int64)
    # A row at a time: it stays in the processor's cache for both counts, which a whole block would not.
    for i, (row, gold_score) in enumerate(zip(rows, gold_scores, strict=True)):
        above[i] = np.count_nonzero(scores[row] > gold_score)
        not_below[i] = np.count_nonzero(scores[row] >= gold_score)
    return above, not_below - above


def _count_known(
    scores: FloatArray, rows: IntArray, golds: IntArray, gold_scores: FloatArray, known: Candidates
) -> tuple[IntArray, IntArray]:
    """How many known answers other than the gold one score above, and level with, it."""
    owner = known.rows
    others = known.ids != golds[owner]
    owner, ids = owner[others], known.ids[others]
    margins = scores[rows[owner], ids], gold_scores[owner]
    above = np.bincount(owner[np.greater(*margins)], minlength=len(golds))
    level = np.bincount(owner[np.equal(*margins)], minlength=len(golds))
    return above, level


def _check_no_nan(scores: FloatArray) -> None:
    # min() passes NaN on, so that one cheap pass finds it: a comparison with NaN is False and would flatter the rank.
    if len(scores) and np.isnan(scores.min()):
        row, entity = np.argwhere(np.isnan(scores))[0]
        raise DataError(
            f"the scorer returned NaN ({np.isnan(scores).sum():,} of {scores.size:,} scores, the first for entity "
            f"{entity} of question {row} in its block). Every entity needs a score; use -inf for the last place."
        )
