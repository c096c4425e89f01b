"""The weight between two tiers, chosen on valid, for each side by itself."""

from dataclasses import dataclass

import numpy as np

from cascader.cascade import Alpha, blend
from cascader.errors import DataError
from cascader.evaluation.protocol import known_splits, walk
from cascader.graph import KnowledgeGraph, Queries
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
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in walk(queries, kg.known(known_splits("valid")), "choosing alpha"):
        scores = earlier.score_all(block.questions), later.score_all(block.questions)
        for i, alpha in enumerate(ALPHAS):
            weights = np.full(len(block.questions), alpha, dtype=np.float32)
            reciprocal[i, block.places] = 1 / block.rank(blend(*scores, weights)).filtered.mean
    sides = ~queries.predicts_tail, queries.predicts_tail
    sums = [reciprocal[:, asked].sum(axis=1) for asked in sides]
    head, tail = (float(ALPHAS[of_alpha.argmax()]) for of_alpha in sums)
    return BestSum(Alpha(head, tail), float(sum(of_alpha.max() for of_alpha in sums) / len(queries)))
