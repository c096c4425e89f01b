"""Eq. 1 and Eq. 2 of the paper: the convex combination of an earlier and a later tier's scores."""

from dataclasses import dataclass

import numpy as np

from cascader.errors import SettingsError
from cascader.graph import BoolArray, Candidates, FloatArray, KnownAnswers, Queries


@dataclass(frozen=True)
class Alpha:
    """The weight of the earlier tiers, by the side that is asked for; the later tier has the rest."""

    head: float
    tail: float

    def __post_init__(self) -> None:
        for side in ("head", "tail"):
            if not 0 <= getattr(self, side) <= 1:
                raise SettingsError(f"alpha for the {side} is {getattr(self, side)}, expected a number from 0 to 1.")

    @classmethod
    def of(cls, value: "float | Alpha") -> "Alpha":
        """The paper's single alpha is the same for both sides."""
        return value if isinstance(value, Alpha) else cls(value, value)

    def per_query(self, predicts_tail: BoolArray) -> FloatArray:
        """The weight for each query; shape (queries,)."""
        return np.where(predicts_tail, self.tail, self.head).astype(np.float32)


def blend(earlier: FloatArray, later: FloatArray, alpha: FloatArray) -> FloatArray:
    """Weigh two tiers' scores of the same candidates; `alpha` is (queries,) or one number a score.

    >>> blend(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([0.75])).tolist()
    [[0.75, 0.25]]
    """
    weights = alpha[:, None] if earlier.ndim > alpha.ndim else alpha
    return weights * earlier + (1 - weights) * later


def mask_known(scores: FloatArray, queries: Queries, known: KnownAnswers | None) -> FloatArray:
    """A copy of the scores, (queries, entities), in which known answers are -inf: they would only take up places."""
    masked = scores.copy()
    if known is not None:
        answers = known.of(queries)
        masked[answers.rows, answers.ids] = -np.inf
    return masked


def rerank(scores: FloatArray, candidates: Candidates, later: FloatArray, alpha: FloatArray) -> FloatArray:
    """Blend the candidates that progressed, and lift them above all that was pruned (Eq. 2 of the paper).

    `scores` is (queries, entities), `later` (candidates,), `alpha` (queries,). The pruned keep their order.

    >>> kept = Candidates.from_lists([[0, 1]])
    >>> rerank(np.array([[3.0, 2.0, 1.0]]), kept, np.array([0.0, 9.0]), np.array([0.5])).argsort().tolist()
    [[2, 0, 1]]
    """
    rows, ids = candidates.rows, candidates.ids
    blended = blend(scores[rows, ids], later, alpha[rows])
    lowest = np.full(len(scores), np.inf, dtype=blended.dtype)
    np.minimum.at(lowest, rows, blended)
    lift = 1 + scores.max(axis=1)
    reranked = scores.copy()
    reranked[rows, ids] = blended - lowest[rows] + lift[rows]
    return reranked
