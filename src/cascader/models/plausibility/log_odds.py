"""What train says for a candidate and against it, as log-odds, each fact left out of its own evidence.

Directed relations are numbered as in `Queries.directed_relations`. The log-odds of an entity compare how often it, or
one like it, is the answer with how often a random entity would be.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cascader.graph import BoolArray, FloatArray, IntArray, KnownAnswers, Queries
from cascader.models.plausibility.evidence import BINS, Evidence, bins_of, features_of

#: How many facts a relation needs before its own counts outweigh those of all relations.
_POOLED_FACTS = 1.0
#: A graph without self-loops is believed to have fewer than one: this many.
_UNSEEN_LOOPS = 0.01
#: Self-loops are a property of a relation, so its own facts outweigh all others soon.
_POOLED_LOOPS = 0.1
#: How many further facts are believed to have links by chance only.
_UNLINKED_FACTS = 5.0
#: The inverse variance of a weight around its closed form (completeness) or around 0 (signature).
_SHRINKAGE = 5.0
_ITERATIONS = 25
#: Only the most common directed relations make a signature, so that weights take at most 10 kB a directed relation.
_SIGNATURE_SIZE = 512
#: The scores that are held at a time while weights are learned.
_SCORES = 4_000_000
_LEAST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts to learn from, seen from both sides, and the evidence that they give."""

    anchors: IntArray  # (2 × facts,)
    golds: IntArray  # (2 × facts,)
    directed: IntArray  # (2 × facts,)
    gold_counts: IntArray  # (2 × facts,) facts of the relation that the gold is the answer of, this one included
    evidence: Evidence

    @classmethod
    def of(cls, known: KnownAnswers) -> "Facts":
        """All known facts, each as two queries."""
        queries, evidence = Queries.from_triples(known.triples), Evidence.of(known)
        directed, golds = queries.directed_relations(known.relation_count), queries.required_golds()
        return cls(queries.anchors, golds, directed, evidence.count(directed, golds), evidence)

    @property
    def entity_count(self) -> int:
        """How many entities the graph has."""
        return self.evidence.counts.shape[1]

    @property
    def directed_count(self) -> int:
        """How many directed relations the graph has."""
        return self.evidence.counts.shape[0]

    @property
    def totals(self) -> IntArray:
        """How many facts each directed relation has; shape (2 × relations,)."""
        return np.bincount(self.directed, minlength=self.directed_count)

    def groups(self) -> Iterator[IntArray]:
        """Directed relations, as many at a time as memory allows."""
        size = max(1, _SCORES // max(1, self.entity_count))
        for start in range(0, self.directed_count, size):
            yield np.arange(start, min(start + size, self.directed_count))


def completeness_log_odds(facts: Facts) -> FloatArray:
    """How a bin of the asked relation's own count speaks, against having none; shape (2 × relations, 1 + bins).

    In each bin, the golds found there are compared with those that random entities would put there. Both get
    `_POOLED_FACTS` further golds at the ratio of all relations, so that a relation with few facts is like the others.
    """
    shape = (facts.directed_count, 1 + len(BINS))
    golds, entities = np.zeros(shape), np.zeros(shape)
    np.add.at(golds, (facts.directed, bins_of(facts.gold_counts - 1)), 1)
    counts = facts.evidence.counts.tocoo()
    np.add.at(entities, (counts.row, bins_of(counts.data)), 1)
    entities[:, 0] = facts.entity_count - entities[:, 1:].sum(axis=1)
    expected = entities * (facts.totals / facts.entity_count)[:, None]
    pooled = (golds.sum(axis=0) + 1) / (expected.sum(axis=0) + 1)
    log_odds = np.log((golds + _POOLED_FACTS) / (expected + _POOLED_FACTS / pooled))
    return log_odds - log_odds[:, :1]


class SignatureFit:
    """A log-linear model of who answers a directed relation, from all that entities take part in.

    A score is the sum of the weights of an entity's features; the softmax runs over all entities. The weights of the
    asked relation's own counts start at their closed form and may move, since the other features explain part of it.
    """

    def __init__(self, facts: Facts, completeness: FloatArray | None) -> None:
        self._facts = facts
        self._completeness = completeness
        # Entities with the same features have the same score: one row stands for all of them.
        features = facts.evidence.features.astype(np.float64)
        mixed = features @ np.random.default_rng(0).random(features.shape[1])
        _, first, times = np.unique(mixed, return_index=True, return_counts=True)
        self._rows, self._times = features[first], times.astype(np.float64)  # (distinct, features), (distinct,)
        self._columns = self._rows.T.tocsr()
        common = np.argsort(-np.diff(facts.evidence.counts.indptr), kind="stable")[:_SIGNATURE_SIZE]
        self._is_common = np.repeat(np.isin(np.arange(facts.directed_count), common), len(BINS))

    def weights(self, directed: IntArray) -> FloatArray:
        """The weights of all features for some directed relations; shape (relations, features)."""
        from scipy.optimize import minimize

        start, free = self._start(directed)
        golds = self._gold_features(directed)
        totals = self._facts.totals[directed]

        def objective(changes: FloatArray) -> tuple[float, FloatArray]:
            weights = start.copy()
            weights[free] += changes
            scores = self._rows @ weights.T  # (distinct, relations)
            highest = scores.max(axis=0)
            shares = self._times[:, None] * np.exp(scores - highest)
            sums = shares.sum(axis=0)
            loss = totals @ (np.log(sums) + highest) - (weights * golds).sum()
            gradient = (self._columns @ (shares * (totals / sums))).T - golds
            return loss + _SHRINKAGE / 2 * changes @ changes, gradient[free] + _SHRINKAGE * changes

        found = minimize(objective, np.zeros(free.sum()), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
        start[free] += found.x
        return start

    def _start(self, directed: IntArray) -> tuple[FloatArray, BoolArray]:
        """The weights to start from, and which of them may move; both of shape (relations, features)."""
        free = np.repeat(self._is_common[None], len(directed), axis=0)
        free[np.arange(len(directed))[:, None], own_features(directed)] = self._completeness is not None
        return own_weights(self._facts, directed, self._completeness), free

    def _gold_features(self, directed: IntArray) -> FloatArray:
        """How often the golds have each feature, their own fact left out; shape (relations, features)."""
        from scipy.sparse import csr_array

        facts = self._facts
        wanted = np.isin(facts.directed, directed)
        rows, golds = facts.directed[wanted] - directed[0], facts.golds[wanted]
        ones = np.ones(len(rows))
        times = csr_array((ones, (rows, golds)), shape=(len(directed), facts.entity_count))
        sums: FloatArray = (times @ facts.evidence.features).toarray()
        changes = left_out(facts.evidence, facts.directed[wanted], facts.anchors[wanted], golds)
        np.add.at(sums, (rows[changes.rows], changes.features), changes.values)
        return sums


@dataclass(frozen=True, eq=False)
class FeatureChanges:
    """Features that an entity has less or more of than the evidence says."""

    rows: IntArray
    features: IntArray
    values: FloatArray  # -1 or 1

    def where(self, wanted: BoolArray) -> "FeatureChanges":
        """Only those changes."""
        return FeatureChanges(self.rows[wanted], self.features[wanted], self.values[wanted])


def left_out(evidence: Evidence, directed: IntArray, anchors: IntArray, answers: IntArray) -> FeatureChanges:
    """What leaving a known fact out changes in the features of its answer.

    It has one fact less on the side that is asked for and, if the fact links it to itself, on the other side as well.
    """
    rows, loops = np.arange(len(answers)), np.flatnonzero(anchors == answers)
    relations = evidence.counts.shape[0] // 2
    inverse = (directed[loops] + relations) % (2 * relations)
    rows, sided = np.concatenate([rows, loops]), np.concatenate([directed, inverse])
    counts = evidence.count(sided, answers[rows])
    had, has = features_of(sided, counts), features_of(sided, counts - 1)
    left = counts > 1
    return FeatureChanges(
        rows=np.concatenate([rows, rows[left]]),
        features=np.concatenate([had, has[left]]),
        values=np.concatenate([-np.ones(len(rows)), np.ones(left.sum())]),
    )


def own_features(directed: IntArray) -> IntArray:
    """The features that count the asked relation itself; shape (relations, bins)."""
    return directed[:, None] * len(BINS) + np.arange(len(BINS))


def own_weights(facts: Facts, directed: IntArray, completeness: FloatArray | None) -> FloatArray:
    """The weights of all features where only the asked relation's own counts speak; shape (relations, features)."""
    weights = np.zeros((len(directed), facts.evidence.features.shape[1]))
    if completeness is not None:
        weights[np.arange(len(directed))[:, None], own_features(directed)] = completeness[directed, 1:]
    return weights


def shares_of(evidence: Evidence, weights: FloatArray) -> FloatArray:
    """The probability of each entity under weights of features, (relations, features); shape (entities, relations)."""
    scores = evidence.features @ weights.T
    shares = np.exp(scores - scores.max(axis=0))
    return shares / shares.sum(axis=0)


def typical_sums(facts: Facts, directed: IntArray, weights: FloatArray, untypical: float) -> FloatArray:
    """The sum of weights below which only that share of the golds is found; shape (relations,)."""
    sums = np.zeros(len(directed))
    for row, asked in enumerate(directed):
        golds = facts.golds[facts.directed == asked]
        if len(golds):
            sums[row] = np.quantile(facts.evidence.features[golds] @ weights[row], untypical)
    return sums


def anchor_log_odds(facts: Facts) -> FloatArray:
    """How being the anchor itself speaks; shape (2 × relations,).

    Other tiers tend to put the anchor first, so it is judged against all other entities together, not a random one.
    """
    is_loop = facts.anchors == facts.golds
    loops = np.bincount(facts.directed[is_loop], minlength=facts.directed_count)
    pooled = (is_loop.sum() + _UNSEEN_LOOPS) / (len(is_loop) + 1)
    return _logit((loops + _POOLED_LOOPS * pooled) / (facts.totals + _POOLED_LOOPS))


def link_log_odds(facts: Facts, directed: int, shares: FloatArray) -> FloatArray:
    """How being linked to the anchor by each directed relation speaks, beyond the features; shape (2 × relations,).

    Among the facts whose anchor has such a link, the share of golds that are linked is compared with the share that
    the entities' features, `shares` of shape (entities,), would give. That there are fewer links than by chance takes
    more facts to believe: links are rare.
    """
    anchors, times = np.unique(facts.anchors[facts.directed == directed], return_counts=True)
    links = facts.evidence.links_of(anchors)
    pairs = links.rows * facts.entity_count + links.answers
    is_gold = np.isin(pairs, pairs[links.directed == directed])
    size = facts.directed_count
    having = np.unique(links.rows * size + links.directed)
    asked = np.bincount(having % size, times[having // size], minlength=size)
    observed = np.bincount(links.directed[is_gold], minlength=size)
    # Another known answer is no candidate, so a gold counts for its own fact only. And what features rule out already
    # must not be made up for.
    weights = np.where(is_gold, 1, times[links.rows]) * np.maximum(shares[links.answers], 1 / facts.entity_count)
    expected = np.bincount(links.directed, weights, minlength=size)
    by_chance = (expected / np.maximum(1, asked)).clip(_LEAST_SHARE, 1 - _LEAST_SHARE)
    found = (observed + _UNLINKED_FACTS * by_chance) / (asked + _UNLINKED_FACTS)
    more, fewer = _logit(found) - _logit(by_chance), np.log((observed + 1) / (expected + 1))
    log_odds: FloatArray = np.where(observed > expected, more, fewer)
    log_odds[directed] = 0.0  # the link that is asked for
    return log_odds


def _logit(share: FloatArray) -> FloatArray:
    return np.log(share) - np.log1p(-share)
