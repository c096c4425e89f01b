"""The choice of alpha on valid: the weight of the earlier tiers, against that of a later one."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cascader.cascade.blend import (
    Alpha,
    Fusion,
    Scale,
    blend,
    blend_all,
    mask_known,
    moments_of,
    rerank,
    scaled_candidates,
)
from cascader.cascade.pruners import Pruner
from cascader.errors import DataError
from cascader.evaluation.protocol import Block, iter_blocks
from cascader.graph import BoolArray, Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.graph.arrays import positions_within
from cascader.scoring.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)
#: How much a later tier may count for each standard deviation of the earlier ones: from nothing to 32 times as much.
STRENGTHS = np.concatenate([[0.0], np.geomspace(1 / 32, 32, 21)])


@dataclass(frozen=True, eq=False)
class TunedBlend:
    """Two tiers with every alpha that was tried on valid, and the best of them for each side or for both."""

    alphas: FloatArray  # (alphas,)
    tried: FloatArray  # (alphas, queries) reciprocal ranks
    queries: Queries
    by_side: bool = True

    @property
    def alpha(self) -> Alpha:
        """The alpha with the highest sum of reciprocal ranks."""
        head, tail = (float(self.alphas[place]) for place in self._best(np.ones(len(self.queries), dtype=bool)))
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
    """Return the paper's alpha with the best valid MRR on each side; both scorers answer each valid question once.

    >>> from cascader import Frequency, KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], valid=[("b", "r", "c")])
    >>> tune_alpha(Frequency().fit(kg), Frequency().fit(kg), kg).tail  # both are the same, so any weight will do
    0.05
    """
    if len(kg.valid) == 0:
        raise DataError(
            f"{kg.name} has no valid triples to choose alpha on. Set alpha yourself, or hold some triples out."
        )
    return best_sum(earlier, later, kg, Queries.from_triples(kg.valid), alphas=ALPHAS).alpha


def alphas_for(earlier: FloatArray, later: FloatArray) -> FloatArray:
    """Return the alphas to try for two tiers, given the standard deviations of their scores in some queries.

    The scores of two models have no scale in common: a tier whose scores vary 50 times as much as those of the others
    counts too much with any alpha from .05 to .95.

    >>> alphas_for(np.array([0.1]), np.array([5.0]))[[0, 1, 11]].round(4).tolist()
    [1.0, 0.9994, 0.9804]
    """
    of_earlier, of_later = _typical(earlier), _typical(later)
    return of_later / (of_later + STRENGTHS * of_earlier)


def _typical(deviations: FloatArray) -> float:
    squares = np.square(deviations[np.isfinite(deviations)], dtype=np.float64)
    return float(np.sqrt(squares.mean())) if squares.any() else 1.0


def best_sum(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    *,
    by_side: bool = True,
    alphas: FloatArray | None = None,
) -> TunedBlend:
    """Find the best weighted sum of two tiers on the given valid queries, with an alpha for each side or for both.

    Without `alphas`, those are tried that suit the scales of both tiers.
    """
    reciprocal = np.empty((len(STRENGTHS if alphas is None else alphas), len(queries)))
    for block in iter_blocks(queries, kg.known(), "choosing alpha"):
        scores = earlier.score_all(block.questions), later.score_all(block.questions)
        if alphas is None:
            with np.errstate(invalid="ignore"):  # infinite scores have no deviation
                alphas = alphas_for(*(each.std(axis=1) for each in scores))
        ranks = [block.rank(blend_all(*scores, _same(alpha, scores[0]))).filtered.mean for alpha in alphas]
        reciprocal[:, block.places] = 1 / np.stack(ranks)
    return TunedBlend(ALPHAS if alphas is None else alphas, reciprocal, queries, by_side)


def best_reranking(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    keep: Pruner,
    fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
    *,
    by_side: bool = True,
    alphas: FloatArray | None = None,
) -> TunedBlend:
    """Find the best reranking of the earlier tier's candidates by the later one, on the given valid queries.

    Without `alphas`, those are tried that suit the scales of both tiers.
    """
    queries = queries.with_known(kg.known_before("valid"))
    reciprocal = np.empty((len(STRENGTHS if alphas is None else alphas), len(queries)))
    for block in iter_blocks(queries, kg.known(), "choosing alpha"):
        scores = earlier.score_all(block.questions)
        masked = mask_known(scores, block.questions)
        kept = keep.keep(block.questions, masked)
        of_later = later.score(block.questions, kept)
        if alphas is None:
            scaled = _scaled_kept(scores, kept, of_later, fusion.scale)
            alphas = alphas_for(*(moments_of(each, kept.rows, len(kept))[1] for each in scaled))
        if fusion.pruned == "below":
            ranks = ranks_below(block, scores, masked, kept, of_later, fusion, alphas)
        else:
            ranks = np.stack(
                [
                    block.rank(rerank(scores, masked, kept, of_later, _same(alpha, scores), fusion)).filtered.mean
                    for alpha in alphas
                ]
            )
        reciprocal[:, block.places] = 1 / ranks
    return TunedBlend(ALPHAS if alphas is None else alphas, reciprocal, queries, by_side)


def _scaled_kept(
    scores: FloatArray, kept: Candidates, later: FloatArray, scale: Scale
) -> tuple[FloatArray, FloatArray]:
    """The scores of the kept candidates from the earlier and from the later tier; shapes (candidates,)."""
    earlier = scaled_candidates(scores[kept.rows, kept.ids], kept, scale)
    return earlier, scaled_candidates(later, kept, scale)


def ranks_below(
    block: Block,
    scores: FloatArray,
    masked: FloatArray,
    kept: Candidates,
    later: FloatArray,
    fusion: Fusion,
    alphas: FloatArray,
) -> FloatArray:
    """Rank the golds for every alpha when pruned candidates rank below all kept ones; shape (alphas, queries).

    The rank of a pruned gold does not depend on alpha, and a kept gold only competes with other kept candidates. So all
    entities are ranked once, and after that the candidates are enough.
    """
    once = rerank(scores, masked, kept, later, _same(float(alphas[0]), scores), fusion)
    ranks = np.tile(block.rank(once).filtered.mean, (len(alphas), 1))
    earlier, later = _scaled_kept(scores, kept, later, fusion.scale)
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
    for i, alpha in enumerate(alphas):
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
