"""A cascade is itself a scorer: an ensemble is one in which nothing is pruned between the tiers."""

from dataclasses import dataclass

import numpy as np

from cascader.cascade.blend import Alpha, blend, mask_known, rerank
from cascader.graph import Candidates, FloatArray, KnownAnswers, Queries
from cascader.pruning import Pruner
from cascader.scorer import Scorer


@dataclass(frozen=True)
class Tier:
    """A later tier: what scores, the weight of all that came before it, and which candidates it gets to see."""

    scorer: Scorer
    alpha: Alpha
    keep: Pruner | None  # None: all of them


class Cascade:
    """Scores with a first tier, then with each further tier, blended by its alpha.

    `Cascade(first).then(second, alpha=0.7)` is the paper's additive ensemble (Eq. 1). With `keep`, a tier is only ever
    asked about the candidates that the pruner lets through (Eq. 2); what is `known` never takes a place there. A
    cascade never changes: `then` returns a new one.
    """

    def __init__(self, first: Scorer, tiers: tuple[Tier, ...] = (), *, known: KnownAnswers | None = None) -> None:
        self.first = first
        self.tiers = tiers
        self.known = known

    def then(self, scorer: Scorer, *, alpha: float | Alpha, keep: Pruner | None = None) -> "Cascade":
        """Add a tier; `alpha` is the weight of all that came before it."""
        return Cascade(self.first, (*self.tiers, Tier(scorer, Alpha.of(alpha), keep)), known=self.known)

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        scores = self.first.score_all(queries)
        for tier in self.tiers:
            weights = tier.alpha.per_query(queries.predicts_tail)
            if tier.keep is None:
                scores = blend(scores, tier.scorer.score_all(queries), weights)
            else:
                candidates = tier.keep.keep(queries, mask_known(scores, queries, self.known))
                scores = rerank(scores, candidates, tier.scorer.score(queries, candidates), weights)
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        if any(tier.keep is not None for tier in self.tiers):  # who is pruned depends on all entities
            return self.score_all(queries)[candidates.rows, candidates.ids]
        scores = self.first.score(queries, candidates)
        for tier in self.tiers:
            weights = np.repeat(tier.alpha.per_query(queries.predicts_tail), candidates.counts)
            scores = blend(scores, tier.scorer.score(queries, candidates), weights)
        return scores
