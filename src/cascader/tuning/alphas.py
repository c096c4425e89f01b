"""The weight between two tiers, chosen on valid, for each side by itself."""

import numpy as np

from cascader.cascade import Alpha, blend
from cascader.errors import DataError
from cascader.evaluation.protocol import known_splits, walk
from cascader.graph import KnowledgeGraph, Queries
from cascader.scorer import Scorer

#: From .05 to .95, as in the paper.
ALPHAS = np.linspace(0.05, 0.95, 19)


def tune_alpha(earlier: Scorer, later: Scorer, kg: KnowledgeGraph) -> Alpha:
    """The alpha with the best valid MRR on each side; both scorers see each valid question once."""
    if len(kg.valid) == 0:
        raise DataError(f"{kg.name} has no valid triples to choose alpha on. Give alpha yourself, or hold some back.")
    queries = Queries.from_triples(kg.valid)
    reciprocal = np.empty((len(ALPHAS), len(queries)))
    for block in walk(queries, kg.known(known_splits("valid")), "choosing alpha"):
        scores = earlier.score_all(block.questions), later.score_all(block.questions)
        for i, alpha in enumerate(ALPHAS):
            weights = np.full(len(block.questions), alpha, dtype=np.float32)
            reciprocal[i, block.places] = 1 / block.rank(blend(*scores, weights)).filtered.mean
    head, tail = (
        float(ALPHAS[reciprocal[:, asked].sum(axis=1).argmax()])
        for asked in (~queries.predicts_tail, queries.predicts_tail)
    )
    return Alpha(head, tail)
