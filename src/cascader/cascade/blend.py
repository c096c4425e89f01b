"""Eq. 1 and Eq. 2 of the paper, which combine an earlier and a later tier's scores, and the choice of their alpha."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit

from cascader.cascade.pruners import Pruner
from cascader.errors import DataError, SettingsError
from cascader.evaluation.protocol import Block, iter_blocks
from cascader.graph import BoolArray, Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.graph.arrays import positions_within
from cascader.scoring.scorer import Scorer

#: How scores are scaled before they are added: not at all, by the logistic function, or to mean 0 and standard
#: deviation 1 per query.
Scale = Literal["raw", "logistic", "standardized"]
#: Where pruned candidates end up: with their old scores (Eq. 2 to the letter), or always below the kept ones.
Pruned = Literal["unchanged", "below"]
#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)


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
    return weights * earlier + (1 - weights) * later


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
    center, spread = _moments(scores[rows, ids], rows, len(scores))
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
    center, spread = _moments(values, candidates.rows, len(candidates))
    return _scaled(values, scale, center[candidates.rows], spread[candidates.rows])


def _moments(values: FloatArray, rows: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Compute the mean and standard deviation of each query's values; shapes (queries,)."""
    sizes = np.bincount(rows, minlength=count).clip(1)
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


@dataclass(frozen=True, eq=False)
class TunedBlend:
    """Two tiers with every alpha that was tried on valid, and the best of them for each side or for both."""

    tried: FloatArray  # (alphas, queries) reciprocal ranks
    queries: Queries
    by_side: bool = True

    @property
    def alpha(self) -> Alpha:
        """The alpha with the highest sum of reciprocal ranks."""
        head, tail = (float(ALPHAS[place]) for place in self._best(np.ones(len(self.queries), dtype=bool)))
        return Alpha(head, tail)

    @cached_property
    def reciprocal_ranks(self) -> FloatArray:
        """The reciprocal rank of each query with it; shape (queries,)."""
        return self._with_best(np.ones(len(self.queries), dtype=bool))

    @property
    def mrr(self) -> float:
        """The MRR on the valid queries with it."""
        return float(self.reciprocal_ranks.mean())

    def held_out(self, fold_of: IntArray) -> FloatArray:
        """The reciprocal rank of each query with the alpha that is best for the other folds; shape (queries,)."""
        found = np.empty(len(self.queries))
        for fold in np.unique(fold_of):
            is_in = fold_of == fold
            others = is_in if is_in.all() else ~is_in  # a single triple can only be judged by itself
            found[is_in] = self._with_best(others)[is_in]
        return found

    def _with_best(self, chosen_on: BoolArray) -> FloatArray:
        """All reciprocal ranks, (queries,), with the alpha that is best for some of the queries."""
        head, tail = self._best(chosen_on)
        return np.where(self.queries.predicts_tail, self.tried[tail], self.tried[head])

    def _best(self, chosen_on: BoolArray) -> tuple[int, int]:
        """The places of the best alphas for heads and for tails."""
        is_tail = self.queries.predicts_tail
        sides = (chosen_on & ~is_tail, chosen_on & is_tail) if self.by_side else (chosen_on, chosen_on)
        head, tail = (int(self.tried[:, on_side].sum(axis=1).argmax()) for on_side in sides)
        return head, tail


def tune_alpha(earlier: Scorer, later: Scorer, kg: KnowledgeGraph) -> Alpha:
    """Return the alpha with the best valid MRR on each side; both scorers answer each valid question once.

    >>> from cascader import Frequency, KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], valid=[("b", "r", "c")])
    >>> tune_alpha(Frequency().fit(kg), Frequency().fit(kg), kg).tail  # both are the same, so any weight will do
    0.05
    """
    if len(kg.valid) == 0:
        raise DataError(
            f"{kg.name} has no valid triples to choose alpha on. Set alpha yourself, or hold some triples out."
        )
    return best_sum(earlier, later, kg, Queries.from_triples(kg.valid)).alpha


def best_sum(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    scale: Scale = "raw",
    *,
    by_side: bool = True,
) -> TunedBlend:
    """Find the best weighted sum of two tiers on the given valid queries, with an alpha for each side or for both."""
    return TunedBlend(_sums(earlier, later, kg, queries, scale), queries, by_side)


def best_reranking(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    keep: Pruner,
    fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
    *,
    by_side: bool = True,
) -> TunedBlend:
    """Find the best reranking of the earlier tier's candidates by the later one, on the given valid queries."""
    queries = queries.with_known(kg.known_before("valid"))
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in iter_blocks(queries, kg.known(), "choosing alpha"):
        scores = earlier.score_all(block.questions)
        masked = mask_known(scores, block.questions)
        kept = keep.keep(block.questions, masked)
        of_later = later.score(block.questions, kept)
        if fusion.pruned == "below":
            ranks = ranks_below(block, scores, masked, kept, of_later, fusion)
        else:
            ranks = np.stack(
                [
                    block.rank(rerank(scores, masked, kept, of_later, _same(alpha, scores), fusion)).filtered.mean
                    for alpha in ALPHAS
                ]
            )
        reciprocal[:, block.places] = 1 / ranks
    return TunedBlend(reciprocal, queries, by_side)


def ranks_below(
    block: Block, scores: FloatArray, masked: FloatArray, kept: Candidates, later: FloatArray, fusion: Fusion
) -> FloatArray:
    """Rank the golds for every alpha when pruned candidates rank below all kept ones; shape (alphas, queries).

    The rank of a pruned gold does not depend on alpha, and a kept gold only competes with other kept candidates. So all
    entities are ranked once, and after that the candidates are enough.
    """
    once = rerank(scores, masked, kept, later, _same(float(ALPHAS[0]), scores), fusion)
    ranks = np.tile(block.rank(once).filtered.mean, (len(ALPHAS), 1))
    earlier = scaled_candidates(scores[kept.rows, kept.ids], kept, fusion.scale)
    later = scaled_candidates(later, kept, fusion.scale)
    # Each query has the candidates of its question, except known answers other than its own gold.
    rows, places = _candidates_of(block, kept)
    is_gold = kept.ids[places] == block.golds[rows]
    known = np.isin(
        rows * block.entity_count + kept.ids[places], block.known.rows * block.entity_count + block.known.ids
    )
    rows, places, is_gold = (part[is_gold | ~known] for part in (rows, places, is_gold))
    read, gold_places = rows[is_gold], places[is_gold]
    gold_of = np.full(len(block.golds), -1)
    gold_of[read] = gold_places
    competes = gold_of[rows] >= 0
    rows, places = rows[competes], places[competes]
    for i, alpha in enumerate(ALPHAS):
        blended = blend(earlier, later, np.float32(alpha) * np.ones(1, np.float32))
        margins = blended[places], blended[gold_of[rows]]
        above = np.bincount(rows[np.greater(*margins)], minlength=len(block.golds))
        level = np.bincount(rows[np.equal(*margins)], minlength=len(block.golds))  # includes the gold itself
        ranks[i, read] = above[read] + (1 + level[read]) / 2
    return ranks


def _candidates_of(block: Block, kept: Candidates) -> tuple[IntArray, IntArray]:
    """Pair each query of a block with each candidate of its question: rows of queries, positions of candidates."""
    counts = kept.counts[block.rows]
    rows = np.repeat(np.arange(len(block.rows)), counts)
    return rows, kept.offsets[block.rows][rows] + positions_within(counts)


def _same(alpha: float, scores: FloatArray) -> FloatArray:
    return np.full(len(scores), alpha, dtype=np.float32)


def _sums(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale) -> FloatArray:
    def added(questions: Queries) -> Callable[[FloatArray], FloatArray]:
        scores = earlier.score_all(questions), later.score_all(questions)
        return lambda alpha: blend_all(*scores, alpha, scale)

    return _reciprocal_ranks(added, kg, queries)


def _reciprocal_ranks(
    fused: Callable[[Queries], Callable[[FloatArray], FloatArray]], kg: KnowledgeGraph, queries: Queries
) -> FloatArray:
    """Try every alpha on each block of questions, scoring each block once; shape (alphas, queries)."""
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in iter_blocks(queries, kg.known(), "choosing alpha"):
        at = fused(block.questions)
        for i, alpha in enumerate(ALPHAS):
            scores = at(np.full(len(block.questions), alpha, dtype=np.float32))
            reciprocal[i, block.places] = 1 / block.rank(scores).filtered.mean
    return reciprocal
