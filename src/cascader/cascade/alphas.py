"""The weight between two tiers, chosen on valid, for each side by itself."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cascader.cascade import Alpha, Fusion, Scale, blend, blend_all, mask_known, rerank
from cascader.cascade.blend import scaled_candidates
from cascader.cascade.pruners import Pruner
from cascader.errors import DataError
from cascader.evaluation.protocol import Block, iter_blocks, known_splits
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.graph.candidates import positions_within
from cascader.scoring.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)
#: So many queries of its own a relation needs before its own best alpha counts as much as everyone's.
_SHRINKAGE = 50


@dataclass(frozen=True)
class TunedBlend:
    """How good two tiers are together at best."""

    alpha: Alpha
    mrr: float


def tune_alpha(earlier: Scorer, later: Scorer, kg: KnowledgeGraph) -> Alpha:
    """The alpha with the best valid MRR on each side; both scorers see each valid question once.

    >>> from cascader import Frequency, KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], valid=[("b", "r", "c")])
    >>> tune_alpha(Frequency().fit(kg), Frequency().fit(kg), kg).tail  # both are the same, so any weight would do
    0.05
    """
    if len(kg.valid) == 0:
        raise DataError(f"{kg.name} has no valid triples to choose alpha on. Give alpha yourself, or hold some back.")
    return best_sum(earlier, later, kg, Queries.from_triples(kg.valid)).alpha


def best_sum(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale = "raw") -> TunedBlend:
    """The best sum of two tiers on some queries of valid."""
    return _best(_sums(earlier, later, kg, queries, scale), queries)


def relation_alphas(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale) -> Alpha:
    """An alpha for each relation and side, drawn towards the one for all the more, the fewer queries it has."""
    reciprocal = _sums(earlier, later, kg, queries, scale)
    of_all = _best(reciprocal, queries).alpha
    relations = {}
    for relation in np.unique(queries.relations):
        weights = []
        for asked, common in ((~queries.predicts_tail, of_all.head), (queries.predicts_tail, of_all.tail)):
            own = asked & (queries.relations == relation)
            best = ALPHAS[reciprocal[:, own].sum(axis=1).argmax()]
            weights.append(float((own.sum() * best + _SHRINKAGE * common) / (own.sum() + _SHRINKAGE)))
        relations[int(relation)] = (weights[0], weights[1])
    return Alpha(of_all.head, of_all.tail, relations)


def best_reranking(
    earlier: Scorer,
    later: Scorer,
    kg: KnowledgeGraph,
    queries: Queries,
    keep: Pruner,
    fusion: Fusion = Fusion(),  # noqa: B008 - a frozen value
) -> TunedBlend:
    """The best that a later tier makes of an earlier one's candidates, on some queries of valid."""
    queries = queries.with_known(kg.known_before("valid"))
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in iter_blocks(queries, kg.known(known_splits("valid")), "choosing alpha"):
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
    """The golds' ranks for every alpha, where the pruned stand below all that was read; shape (alphas, queries).

    A gold that was pruned has the same rank whatever alpha is, and one that was read only competes with what was read:
    so but for one look at all entities, the candidates are enough.
    """
    once = rerank(scores, masked, kept, later, _same(float(ALPHAS[0]), scores), fusion)
    ranks = np.tile(block.rank(once).filtered.mean, (len(ALPHAS), 1))
    earlier = scaled_candidates(scores[kept.rows, kept.ids], kept, fusion.scale)
    later = scaled_candidates(later, kept, fusion.scale)
    # Each query has the candidates of its question, but for known answers other than its own gold.
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
        level = np.bincount(rows[np.equal(*margins)], minlength=len(block.golds))  # the gold itself included
        ranks[i, read] = above[read] + (1 + level[read]) / 2
    return ranks


def _candidates_of(block: Block, kept: Candidates) -> tuple[IntArray, IntArray]:
    """For each query of a block and each candidate of its question: the query, and the candidate's place."""
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
    """Try all alphas on each block of questions, whose scores are computed once; shape (alphas, queries)."""
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in iter_blocks(queries, kg.known(known_splits("valid")), "choosing alpha"):
        at = fused(block.questions)
        for i, alpha in enumerate(ALPHAS):
            scores = at(np.full(len(block.questions), alpha, dtype=np.float32))
            reciprocal[i, block.places] = 1 / block.rank(scores).filtered.mean
    return reciprocal


def _best(reciprocal: FloatArray, queries: Queries) -> TunedBlend:
    """The alpha with the highest sum of reciprocal ranks, for each side by itself."""
    sides = ~queries.predicts_tail, queries.predicts_tail
    sums = [reciprocal[:, asked].sum(axis=1) for asked in sides]
    head, tail = (float(ALPHAS[of_alpha.argmax()]) for of_alpha in sums)
    return TunedBlend(Alpha(head, tail), float(sum(of_alpha.max() for of_alpha in sums) / len(queries)))
