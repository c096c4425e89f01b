"""The weight between two tiers, chosen on valid, for each side by itself."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cascader.cascade import Alpha, Fusion, Scale, add_up, mask_known, rerank
from cascader.errors import DataError
from cascader.evaluation.protocol import known_splits, walk
from cascader.graph import FloatArray, KnowledgeGraph, Queries
from cascader.pruning import Pruner
from cascader.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)
#: So many queries of its own a relation needs before its own best alpha counts as much as everyone's.
_SHRINKAGE = 50


@dataclass(frozen=True)
class BestSum:
    """How good two tiers are together at best."""

    alpha: Alpha
    mrr: float


def tune_alpha(earlier: Scorer, later: Scorer, kg: KnowledgeGraph) -> Alpha:
    """The alpha with the best valid MRR on each side; both scorers see each valid question once."""
    if len(kg.valid) == 0:
        raise DataError(f"{kg.name} has no valid triples to choose alpha on. Give alpha yourself, or hold some back.")
    return best_sum(earlier, later, kg, Queries.from_triples(kg.valid)).alpha


def best_sum(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale = "raw") -> BestSum:
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
) -> BestSum:
    """The best that a later tier makes of an earlier one's candidates, on some queries of valid."""
    known = kg.known(("train",))  # valid is what is asked for

    def reranked(questions: Queries) -> Callable[[FloatArray], FloatArray]:
        scores = earlier.score_all(questions)
        masked = mask_known(scores, questions, known)
        candidates = keep.keep(questions, masked)
        of_later = later.score(questions, candidates)
        return lambda alpha: rerank(scores, masked, candidates, of_later, alpha, fusion)

    return _best(_reciprocal_ranks(reranked, kg, queries), queries)


def _sums(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, scale: Scale) -> FloatArray:
    def added(questions: Queries) -> Callable[[FloatArray], FloatArray]:
        scores = earlier.score_all(questions), later.score_all(questions)
        return lambda alpha: add_up(*scores, alpha, scale)

    return _reciprocal_ranks(added, kg, queries)


def _reciprocal_ranks(
    fused: Callable[[Queries], Callable[[FloatArray], FloatArray]], kg: KnowledgeGraph, queries: Queries
) -> FloatArray:
    """Try all alphas on each block of questions, whose scores are computed once; shape (alphas, queries)."""
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in walk(queries, kg.known(known_splits("valid")), "choosing alpha"):
        at = fused(block.questions)
        for i, alpha in enumerate(ALPHAS):
            scores = at(np.full(len(block.questions), alpha, dtype=np.float32))
            reciprocal[i, block.places] = 1 / block.rank(scores).filtered.mean
    return reciprocal


def _best(reciprocal: FloatArray, queries: Queries) -> BestSum:
    """The alpha with the highest sum of reciprocal ranks, for each side by itself."""
    sides = ~queries.predicts_tail, queries.predicts_tail
    sums = [reciprocal[:, asked].sum(axis=1) for asked in sides]
    head, tail = (float(ALPHAS[of_alpha.argmax()]) for of_alpha in sums)
    return BestSum(Alpha(head, tail), float(sum(of_alpha.max() for of_alpha in sums) / len(queries)))
