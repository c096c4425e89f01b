"""Scores of which one knows what they tell."""

import numpy as np

from cascader.cascade.pruners import ScoredQueries
from cascader.graph import Queries


def world(count, entities=200, seed=0, easy_share=0.7):
    """The gold of an easy query stands far out, as does its score; that of a hard one is anywhere."""
    rng = np.random.default_rng(seed)
    golds = rng.integers(entities, size=count)
    scores = rng.normal(size=(count, entities)).astype(np.float32)
    scores[np.arange(count), golds] += np.where(rng.random(count) < easy_share, 9, 0).astype(np.float32)
    anchors, relations = rng.integers(10**6, size=count), rng.integers(4, size=count)
    return ScoredQueries(Queries(anchors, relations, rng.random(count) < 0.5, golds=golds), scores)


def coverage(pruner, seen):
    """The share of golds that survive, found among the candidates themselves."""
    kept = pruner.keep(seen.queries, seen.scores)
    return np.isin(np.arange(len(kept)), kept.rows[kept.ids == seen.queries.golds[kept.rows]]).mean()
