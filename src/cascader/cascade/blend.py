"""Eq. 1 and Eq. 2 of the paper: the convex combination of an earlier and a later tier's scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit

from cascader.errors import SettingsError
from cascader.graph import Candidates, FloatArray, IntArray, Queries

#: What is done to scores before they are added: nothing, the logistic function, or mean 0 and deviation 1 per query.
Scale = Literal["raw", "logistic", "standardized"]
#: What happens to pruned candidates: they keep their scores (Eq. 2 to the letter), or are also kept below the rest.
Pruned = Literal["unchanged", "below"]


@dataclass(frozen=True)
class Alpha:
    """The weight of the earlier tiers, by the side that is asked for; the later tier has the rest.

    `relations` gives some relations, by index, weights of their own: (head, tail).

    >>> Alpha.of(0.7)  # one for all, as in the paper
    Alpha(head=0.7, tail=0.7, relations={})
    >>> Alpha(head=0.9, tail=0.5).per_query(Queries(np.zeros(1, int), np.zeros(1, int), np.array([True]))).tolist()
    [0.5]
    """

    head: float
    tail: float
    relations: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        weights = {"the head": self.head, "the tail": self.tail}
        weights |= {f"relation {i}": bad for i, of in self.relations.items() for bad in of if not 0 <= bad <= 1}
        for what, weight in weights.items():
            if not 0 <= weight <= 1:
                raise SettingsError(f"alpha for {what} is {weight}, expected a number from 0 to 1.")

    @classmethod
    def of(cls, value: "float | Alpha") -> "Alpha":
        """The paper's single alpha is the same for both sides."""
        return value if isinstance(value, Alpha) else cls(value, value)

    def __str__(self) -> str:
        weights = f"{self.head:.4g}" if self.head == self.tail else f"{self.head:.4g} (head), {self.tail:.4g} (tail)"
        return f"{weights}, {len(self.relations)} relations of their own" if self.relations else weights

    def per_query(self, queries: Queries) -> FloatArray:
        """The weight for each query; shape (queries,)."""
        weights = np.where(queries.predicts_tail, self.tail, self.head).astype(np.float32)
        for relation, (head, tail) in self.relations.items():
            asked = queries.relations == relation
            weights[asked] = np.where(queries.predicts_tail[asked], tail, head)
        return weights

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**asdict(self), "relations": {str(i): list(of) for i, of in self.relations.items()}}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Alpha":
        """What `as_dict` gave."""
        relations = {int(i): (head, tail) for i, (head, tail) in saved["relations"].items()}
        return cls(saved["head"], saved["tail"], relations)


@dataclass(frozen=True)
class Fusion:
    """How the scores of two tiers come together.

    >>> Fusion("standardized", pruned="unchanged")  # mean 0 and deviation 1 per question; Eq. 2 to the letter
    Fusion(scale='standardized', pruned='unchanged')
    """

    scale: Scale = "raw"
    pruned: Pruned = "below"

    def __post_init__(self) -> None:
        for name, choices in (("scale", get_args(Scale)), ("pruned", get_args(Pruned))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"{name} is {getattr(self, name)!r}, expected one of: {', '.join(choices)}.")


def blend(earlier: FloatArray, later: FloatArray, alpha: FloatArray) -> FloatArray:
    """Weigh two tiers' scores of the same candidates; `alpha` is (queries,) or one number a score.

    >>> blend(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([0.75])).tolist()
    [[0.75, 0.25]]
    """
    weights = alpha[:, None] if earlier.ndim > alpha.ndim else alpha
    return weights * earlier + (1 - weights) * later


def blend_all(earlier: FloatArray, later: FloatArray, alpha: FloatArray, scale: Scale = "raw") -> FloatArray:
    """Eq. 1, the additive ensemble: all entities have both scores; shapes (queries, entities)."""
    return blend(_scaled_rows(earlier, scale), _scaled_rows(later, scale), alpha)


def mask_known(scores: FloatArray, queries: Queries) -> FloatArray:
    """A copy of the scores, (queries, entities), in which known answers are -inf: they would only take up places."""
    masked = scores.copy()
    if queries.known is not None:
        answers = queries.known.of(queries)
        masked[answers.rows, answers.ids] = -np.inf
    return masked


def rerank(
    scores: FloatArray,
    masked: FloatArray,
    candidates: Candidates,
    later: FloatArray,
    alpha: FloatArray,
    fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
) -> FloatArray:
    """Eq. 2: blend the candidates that progressed; the pruned keep their scores, and their order.

    `scores` is (queries, entities), `masked` the same with known answers at -inf, `later` (candidates,), `alpha`
    (queries,). Where the best of the pruned would overtake, all that progressed is lifted above it.

    >>> kept = Candidates.from_lists([[0, 1]])
    >>> before = np.array([[3.0, 2.0, 1.0]])
    >>> rerank(before, before, kept, np.array([0.0, 9.0]), np.array([0.5])).tolist()
    [[1.5, 5.5, 1.0]]
    """
    rows, ids = candidates.rows, candidates.ids
    centre, spread = _moments(scores[rows, ids], rows, len(scores))
    reranked = _scaled(scores, fusion.scale, centre[:, None], spread[:, None]).copy()
    blended = blend(reranked[rows, ids], scaled_candidates(later, candidates, fusion.scale), alpha[rows])
    if fusion.pruned == "below":
        pruned = np.where(np.isneginf(masked), -np.inf, reranked)
        pruned[rows, ids] = -np.inf
        lowest = np.full(len(scores), np.inf, dtype=blended.dtype)
        np.minimum.at(lowest, rows, blended)
        over = pruned.max(axis=1) - lowest
        blended = blended + np.where(over > 0, over + 1, 0)[rows].astype(blended.dtype)
    reranked[rows, ids] = blended
    return reranked


def _scaled_rows(scores: FloatArray, scale: Scale) -> FloatArray:
    """All entities' scores, (queries, entities), scaled by what each query has."""
    moments = (f(axis=1, keepdims=True, dtype=np.float64).astype(np.float32) for f in (scores.mean, scores.std))
    return scores if scale == "raw" else _scaled(scores, scale, *moments)


def scaled_candidates(values: FloatArray, candidates: Candidates, scale: Scale) -> FloatArray:
    """A score for each candidate, scaled by what its query's candidates have; shape (candidates,)."""
    centre, spread = _moments(values, candidates.rows, len(candidates))
    return _scaled(values, scale, centre[candidates.rows], spread[candidates.rows])


def _moments(values: FloatArray, rows: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each query's values; shapes (queries,)."""
    sizes = np.bincount(rows, minlength=count).clip(1)
    centre = np.bincount(rows, weights=values, minlength=count) / sizes
    variance = np.bincount(rows, weights=(values - centre[rows]) ** 2, minlength=count) / sizes
    return centre.astype(np.float32), np.sqrt(variance).astype(np.float32)


def _scaled(values: FloatArray, scale: Scale, centre: FloatArray, spread: FloatArray) -> FloatArray:
    """Monotone per query, so that no order changes."""
    if scale == "raw":
        return values
    if scale == "logistic":
        return expit(values)
    is_constant = spread <= 1e-6 * (1 + np.abs(centre))  # what float32 sees as one and the same score
    return (values - centre) / np.where(is_constant, 1, spread)
