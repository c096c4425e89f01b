"""Choose alpha, the weight between two tiers, on valid and separately for each side."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cascader.cascade import Alpha, Fusion, Scale, blend, blend_all, mask_known, rerank
from cascader.cascade.blend import scaled_candidates
from cascader.cascade.pruners import Pruner
from cascader.errors import DataError
from cascader.evaluation.protocol import Block, iter_blocks
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.graph.arrays import positions_within
from cascader.scoring.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True, eq=False)
class TunedBlend:
    """The best alpha for two tiers, and the ranks they reach with it on valid."""

    alpha: Alpha
    reciprocal_ranks: FloatArray  # (queries,) of the valid queries with it

    @property
    def mrr(self) -> float:
        """The MRR on the valid queries with it."""
        return float(self.reciprocal_ranks.mean())


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


def best_sum(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale = "raw") -> TunedBlend:
    """Find the best weighted sum of two tiers on the given valid queries."""
    return _best(_sums(earlier, later, kg, queries, scale), queries)


def best_reranking(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    keep: Pruner,
    fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
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
    return _best(reciprocal, queries)


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


def _best(reciprocal: FloatArray, queries: Queries) -> TunedBlend:
    """Choose the alpha with the highest sum of reciprocal ranks, separately for each side."""
    sides = ~queries.predicts_tail, queries.predicts_tail
    head, tail = (int(reciprocal[:, on_side].sum(axis=1).argmax()) for on_side in sides)
    best = np.where(queries.predicts_tail, reciprocal[tail], reciprocal[head])
    return TunedBlend(Alpha(float(ALPHAS[head]), float(ALPHAS[tail])), best)
