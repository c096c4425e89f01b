"""The weight between two tiers, chosen on valid, for each side by itself."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cascader.cascade import Alpha, Pruner, blend, mask_known, rerank
from cascader.errors import DataError
from cascader.evaluation.protocol import known_splits, walk
from cascader.graph import FloatArray, KnowledgeGraph, Queries
from cascader.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)


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


def best_sum(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries) -> BestSum:
    """The best sum of two tiers on some queries of valid."""

    def blended(questions: Queries) -> Callable[[FloatArray], FloatArray]:
        scores = earlier.score_all(questions), later.score_all(questions)
        return lambda alpha: blend(*scores, alpha)

    return _best(blended, kg, queries)


def best_reranking(earlier: Scorer, later: Scorer, kg: KnowledgeGraph, queries: Queries, keep: Pruner) -> BestSum:
    """The best that a later tier makes of an earlier one's candidates, on some queries of valid."""
    known = kg.known(("train",))  # valid is what is asked for

    def blended(questions: Queries) -> Callable[[FloatArray], FloatArray]:
        scores = earlier.score_all(questions)
        candidates = keep.keep(questions, mask_known(scores, questions, known))
        of_later = later.score(questions, candidates)
        return lambda alpha: rerank(scores, candidates, of_later, alpha)

    return _best(blended, kg, queries)


def _best(
    blended: Callable[[Queries], Callable[[FloatArray], FloatArray]], kg: KnowledgeGraph, queries: Queries
) -> BestSum:
    """Try all alphas on each block of questions, whose scores are computed once."""
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in walk(queries, kg.known(known_splits("valid")), "choosing alpha"):
        at = blended(block.questions)
        for i, alpha in enumerate(ALPHAS):
            scores = at(np.full(len(block.questions), alpha, dtype=np.float32))
            reciprocal[i, block.places] = 1 / block.rank(scores).filtered.mean
    sides = ~queries.predicts_tail, queries.predicts_tail
    sums = [reciprocal[:, asked].sum(axis=1) for asked in sides]
    head, tail = (float(ALPHAS[of_alpha.argmax()]) for of_alpha in sums)
    return BestSum(Alpha(head, tail), float(sum(of_alpha.max() for of_alpha in sums) / len(queries)))
