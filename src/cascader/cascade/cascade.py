"""A cascade is itself a scorer: an ensemble is one in which nothing is pruned between the tiers."""

import numpy as np

from cascader.cascade.blend import Alpha, blend
from cascader.graph import Candidates, FloatArray, Queries
from cascader.scorer import Scorer


class Cascade:
    """Scores with a first tier, then with each further tier, blended by its alpha.

    `Cascade(first).then(second, alpha=0.7)` is the paper's additive ensemble (Eq. 1). A cascade never changes: `then`
    returns a new one.
    """

    def __init__(self, first: Scorer, tiers: tuple[tuple[Scorer, Alpha], ...] = ()) -> None:
        self.first = first
        self.tiers = tiers

    def then(self, scorer: Scorer, *, alpha: float | Alpha) -> "Cascade":
        """Add a tier; `alpha` is the weight of all that came before it."""
        return Cascade(self.first, (*self.tiers, (scorer, Alpha.of(alpha))))

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        scores = self.first.score_all(queries)
        for scorer, alpha in self.tiers:
            scores = blend(scores, scorer.score_all(queries), alpha.per_query(queries.predicts_tail))
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        scores = self.first.score(queries, candidates)
        for scorer, alpha in self.tiers:
            weights = np.repeat(alpha.per_query(queries.predicts_tail), candidates.counts)
            scores = blend(scores, scorer.score(queries, candidates), weights)
        return scores
