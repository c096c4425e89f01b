"""Eq. 1 and Eq. 2 of the paper, which combine the scores of an earlier and of a later tier."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit

from cascader.errors import SettingsError
from cascader.graph import Candidates, FloatArray, IntArray, Queries

#: How scores are scaled before they are added: not at all, by the logistic function, or to mean 0 and standard
#: deviation 1 per query.
Scale = Literal["raw", "logistic", "standardized"]
#: Where pruned candidates end up: with their old scores (Eq. 2 to the letter), or always below the kept ones.
Pruned = Literal["unchanged", "below"]


@dataclass(frozen=True)
class Alpha:
    """The weight of the earlier tiers, for each side that is asked for; the later tier gets the rest.

    `relations` maps the index of a relation to its own weights (head, tail).

    >>> Alpha.of(0.7)  # one alpha for both sides, as in the paper
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
        """Turn the paper's single alpha into one that is the same for both sides."""
        return value if isinstance(value, Alpha) else cls(value, value)

    def __str__(self) -> str:
        weights = f"{self.head:.4g}" if self.head == self.tail else f"{self.head:.4g} (head), {self.tail:.4g} (tail)"
        return f"{weights}, {len(self.relations)} relations with their own" if self.relations else weights

    def per_query(self, queries: Queries) -> FloatArray:
        """Return the weight for each query; shape (queries,)."""
        weights = np.where(queries.predicts_tail, self.tail, self.head).astype(np.float32)
        for relation, (head, tail) in self.relations.items():
            has_relation = queries.relations == relation
            weights[has_relation] = np.where(queries.predicts_tail[has_relation], tail, head)
        return weights

    def as_dict(self) -> dict[str, Any]:
        """Return the weights as a JSON object."""
        return {**asdict(self), "relations": {str(i): list(of) for i, of in self.relations.items()}}


@dataclass(frozen=True)
class Fusion:
    """How the scores of two tiers are blended.

    >>> Fusion("standardized", pruned="unchanged")  # mean 0, deviation 1 per query; Eq. 2 to the letter
    Fusion(scale='standardized', pruned='unchanged')
    """

    scale: Scale = "raw"
    pruned: Pruned = "below"

    def __post_init__(self) -> None:
        for name, choices in (("scale", get_args(Scale)), ("pruned", get_args(Pruned))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"{name} is {getattr(self, name)!r}, expected one of: {', '.join(choices)}.")


def blend(earlier: FloatArray, later: FloatArray, alpha: FloatArray) -> FloatArray:
    """Blend two tiers' scores for the same candidates; `alpha` has one weight per query, or one per score.

    >>> blend(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([0.75])).tolist()
    [[0.75, 0.25]]
    """
    weights = alpha[:, None] if earlier.ndim > alpha.ndim else alpha
    return _weighed(earlier, weights) + _weighed(later, 1 - weights)


def _weighed(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Scores times weights; without weight nothing is left of a score, not even of one that is infinite."""
    nothing = weights == 0
    weighed: FloatArray = weights * (np.where(nothing, 0, scores) if nothing.any() else scores)
    return weighed


def blend_all(earlier: FloatArray, later: FloatArray, alpha: FloatArray, scale: Scale = "raw") -> FloatArray:
    """Blend the scores of all entities (Eq. 1, the additive ensemble); shapes (queries, entities)."""
    return blend(_scaled_rows(earlier, scale), _scaled_rows(later, scale), alpha)


def mask_known(scores: FloatArray, queries: Queries) -> FloatArray:
    """Copy the scores, (queries, entities), with known answers at -inf so that they use up no places."""
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
    """Blend the kept candidates only (Eq. 2); pruned candidates stay in their old order.

    `scores` is (queries, entities), `masked` the same with known answers at -inf, `later` (candidates,), `alpha`
    (queries,). If a pruned candidate would overtake a kept one, all kept candidates are lifted above it.

    >>> kept = Candidates.from_lists([[0, 1]])
    >>> before = np.array([[3.0, 2.0, 1.0]])
    >>> rerank(before, before, kept, np.array([0.0, 9.0]), np.array([0.5])).tolist()
    [[1.5, 5.5, 1.0]]
    """
    rows, ids = candidates.rows, candidates.ids
    center, spread = moments_of(scores[rows, ids], rows, len(scores))
    reranked = _scaled(scores, fusion.scale, center[:, None], spread[:, None]).copy()
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
    """Scale the scores of all entities, (queries, entities), separately for each query."""
    moments = (f(axis=1, keepdims=True, dtype=np.float64).astype(np.float32) for f in (scores.mean, scores.std))
    return scores if scale == "raw" else _scaled(scores, scale, *moments)


def scaled_candidates(values: FloatArray, candidates: Candidates, scale: Scale) -> FloatArray:
    """Scale the scores of the candidates, separately for each query; shape (candidates,)."""
    center, spread = moments_of(values, candidates.rows, len(candidates))
    return _scaled(values, scale, center[candidates.rows], spread[candidates.rows])


def moments_of(values: FloatArray, rows: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Compute the mean and standard deviation of each query's values; shapes (queries,)."""
    sizes = np.bincount(rows, minlength=count).clip(1)
    with np.errstate(invalid="ignore"):  # infinite values have no deviation
        center = np.bincount(rows, weights=values, minlength=count) / sizes
        variance = np.bincount(rows, weights=(values - center[rows]) ** 2, minlength=count) / sizes
    return center.astype(np.float32), np.sqrt(variance).astype(np.float32)


def _scaled(values: FloatArray, scale: Scale, center: FloatArray, spread: FloatArray) -> FloatArray:
    """Scale values monotonically within each query, so that no order changes."""
    if scale == "raw":
        return values
    if scale == "logistic":
        return expit(values)
    is_constant = spread <= 1e-6 * (1 + np.abs(center))  # all scores are equal up to float32 rounding
    return (values - center) / np.where(is_constant, 1, spread)
