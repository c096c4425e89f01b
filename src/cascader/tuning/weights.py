"""Weights for many scorers at once: a log-linear model on valid, by side, with those of a relation close to the whole.

Cross-entropy finds where to start, in one convex problem; but it cares most about golds that are far down, and metrics
about those near the top. So the weights then climb, one at a time, to the best mean reciprocal rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from cascader.cascade import Alpha, Cascade
from cascader.graph import FloatArray, KnowledgeGraph, Queries
from cascader.scoring import Scorer
from cascader.tuning.result import chance_of, is_beyond_chance
from cascader.tuning.sample import FOLDS, Sample, estimated_ranks, folds_of

#: What doubling or halving a relation's own weight must gain, in reciprocal ranks; infinity: it keeps the common one.
SHRINKAGES = (np.inf, 2.0, 0.5)
_FEWEST_QUERIES = 10
#: By what factors a weight is changed, from coarse to fine.
_FACTORS = (4.0, 2.0, 1.4, 1.2)
#: These shares of the largest weight are always tried, so that a small weight is no trap; the first is next to nothing.
_SHARES = (0.05, 0.2, 1.0)
#: How many sums are computed side by side: small samples take as long as their calls, large ones as their memory.
_AT_ONCE = 1 << 15
#: Newton's method ends when no weight changes the logits by more than this, or after so many steps.
_TOLERANCE, _STEPS = 1e-3, 25
#: Keeps the weights finite if the scores separate all golds from the rest.
_RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Weights:
    """A nonnegative weight for each scorer, by side, and by relation where it has its own."""

    sides: FloatArray  # (2, scorers) for heads, for tails
    relations: Mapping[int, FloatArray] = field(default_factory=dict)  # (2, scorers) each

    def per_query(self, queries: Queries) -> FloatArray:
        """Return the weights for each query; shape (queries, scorers)."""
        side = queries.predicts_tail.astype(int)
        weights = self.sides[side]
        for relation, own in self.relations.items():
            asks_it = queries.relations == relation
            weights[asks_it] = own[side[asks_it]]
        return weights

    def alphas(self) -> list[Alpha]:
        """Return the same weights as a chain: the alpha of each scorer but the first; sums rank alike with both."""
        head, tail = _shares(self.sides).tolist()
        own = {relation: _shares(weights).tolist() for relation, weights in self.relations.items()}
        return [
            Alpha(head[i], tail[i], {relation: (of[0][i], of[1][i]) for relation, of in own.items()})
            for i in range(1, len(head))
        ]


def _shares(weights: FloatArray) -> FloatArray:
    """The share of everything before each scorer in the sum up to it; 1 where that sum is 0."""
    upto = np.cumsum(weights, axis=1)
    return np.where(upto > 0, (upto - weights) / np.where(upto > 0, upto, 1), 1.0).clip(0, 1)


# Fitting.


def fit_weights(sample: Sample, shrinkage: float = np.inf) -> Weights:
    """Fit the weights of each side, then those of each relation, to the golds of a sample."""
    return next(_fit_all(sample, [shrinkage]))


def _fit_all(sample: Sample, shrinkages: Sequence[float]) -> Iterator[Weights]:
    """Fit the weights of each side once, and those of each relation with every shrinkage."""
    sides = [sample.where(sample.queries.predicts_tail == predicts_tail) for predicts_tail in (False, True)]
    common = np.stack([_climb(asked, _most_likely(asked)) for asked in sides])
    for shrinkage in shrinkages:
        own: dict[int, FloatArray] = {}
        for side, asked in enumerate(sides) if shrinkage < np.inf else ():
            for relation, queries in _by_relation(asked):
                own.setdefault(relation, common.copy())[side] = _climb(queries, common[side], shrinkage)
        yield Weights(common, own)


def _by_relation(sample: Sample) -> Iterator[tuple[int, Sample]]:
    for relation, count in zip(*np.unique(sample.queries.relations, return_counts=True), strict=True):
        if count >= _FEWEST_QUERIES:
            yield int(relation), sample.where(sample.queries.relations == relation)


def _climb(sample: Sample, start: FloatArray, shrinkage: float = 0.0) -> FloatArray:
    """Change one weight at a time while reciprocal ranks gain, by `shrinkage` for each doubling; shape (scorers,)."""
    scores, counts, units = sample.scores[:, 1:], sample.stands_for[:, 1:], _units(sample)
    weights, sums = start.copy(), scores @ start.astype(np.float32)
    of_scorer = np.ascontiguousarray(np.moveaxis(scores, 2, 0))  # read from end to end, hundreds of times
    best, width = estimated_ranks(sums, counts).sum(), max(1, _AT_ONCE // max(1, sums.size))
    for factor, scorer in product(_FACTORS, np.flatnonzero(units).tolist()):
        values = _neighbors(weights, scorer, factor, units)
        changed = weights[None].repeat(len(values), axis=0)
        changed[:, scorer] = values
        costs = shrinkage * _doublings(changed, start, units) if shrinkage else np.zeros(len(values))
        places = np.flatnonzero(len(sums) - costs > best + 1e-6)  # the others cost more than all golds coming first
        while len(places):
            some = places[:width]
            moved = sums + of_scorer[scorer] * (values[some] - weights[scorer]).astype(np.float32)[:, None, None]
            found = estimated_ranks(moved, counts).sum(axis=1) - costs[some]
            gains = np.flatnonzero(found > best + 1e-6)[:1]
            for place in gains:  # the values behind it are tried from there
                best, weights, sums = found[place], changed[some[place]], moved[place]
            places = places[gains[0] + 1 if len(gains) else len(some) :]
    return weights


def _neighbors(weights: FloatArray, scorer: int, factor: float, units: FloatArray) -> FloatArray:
    """The other values of one weight that are worth trying: near ones, none, and some share of the largest weight."""
    weight, largest = weights[scorer], (weights * units).max()
    shares = [largest * share / units[scorer] for share in _SHARES]
    return np.array([value for value in (weight / factor, weight * factor, 0.0, *shares) if value != weight])


def _doublings(weights: FloatArray, start: FloatArray, units: FloatArray) -> FloatArray:
    """How often each row of weights was doubled or halved since `start`; next to nothing counts as nothing."""
    nothing = _SHARES[0] * (start * units).max() / np.where(units > 0, units, 1)
    doublings: FloatArray = np.abs(np.log2((weights + nothing) / (start + nothing))).sum(axis=1)
    return doublings


def _units(sample: Sample) -> FloatArray:
    """The standard deviation of each scorer, by which their weights can be compared; shape (scorers,)."""
    return sample.scores.std(axis=(0, 1)).astype(np.float64)


def _most_likely(sample: Sample) -> FloatArray:
    """Minimize the cross-entropy of the golds by Newton's method, keeping the weights nonnegative; shape (scorers,)."""
    units = _units(sample)
    weights = np.zeros(len(units))
    for _ in range(_STEPS):
        gradient, curvature = _derivatives(sample, weights)
        curvature = curvature + _RIDGE * np.diag(units**2)
        moving = (units > 0) & ~((weights <= 0) & (gradient > 0))
        if not moving.any():
            break
        step = np.zeros_like(weights)
        step[moving] = np.linalg.solve(curvature[np.ix_(moving, moving)], -gradient[moving])
        step *= min(1.0, 2.0 / max(np.abs(step * units).max(), 1e-12))  # a long way is taken in parts
        moved = np.maximum(weights + step, 0.0)
        change, weights = np.abs(moved - weights) * units, moved
        if change.max() < _TOLERANCE:
            break
    return weights if weights.any() else np.ones(len(units))


def _derivatives(sample: Sample, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean gradient, (scorers,), and curvature, (scorers, scorers), of the cross-entropy of the golds."""
    scores = sample.scores
    query_count, _, scorer_count = scores.shape
    logits = (scores @ weights.astype(np.float32)) + sample.log_counts
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)  # (queries, candidates)
    expected = (shares[:, None, :] @ scores)[:, 0].astype(np.float64)  # (queries, scorers); the gold's scores are 0
    weighted = (scores * np.sqrt(shares)[:, :, None]).reshape(-1, scorer_count)
    curvature = (weighted.T @ weighted).astype(np.float64) - expected.T @ expected
    return expected.mean(axis=0), curvature / query_count


# Choosing.


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """Some of the scorers of a sample, with their weights, and how probable its gain would be by chance."""

    scorers: tuple[int, ...]  # places in the sample, in order
    weights: Weights
    p_value: float | None  # of its gain over the last sum that was beyond chance; None: the first scorer alone

    def cascade(self, scorers: Mapping[str, Scorer]) -> Cascade:
        """Chain the scorers, by name and in the order of the sample, with the alphas that give each its weight."""
        names = list(scorers)
        chosen = [names[place] for place in self.scorers]
        cascade = Cascade(scorers[chosen[0]], name=chosen[0])
        for name, alpha in zip(chosen[1:], self.weights.alphas(), strict=True):
            cascade = cascade.then(scorers[name], alpha=alpha, name=name)
        return cascade


def best_weighted_sum(scorers: Mapping[str, Scorer], kg: KnowledgeGraph) -> Cascade:
    """Add up the scorers, by name and in order of cost, that help on valid."""
    sample = Sample.collect(list(scorers.values()), kg)
    *_, best = (found for found in add_in_order(sample) if is_beyond_chance(found.p_value))
    return best.cascade(scorers)


def add_in_order(sample: Sample) -> Iterator[WeightedSum]:
    """Yield the first scorer, then its sums with one more at a time, in order.

    A scorer stays in the following sums if its gain is beyond chance; one that has become useless leaves them again.
    All gains are measured on triples that the weights were not fitted to.
    """
    chosen: list[int] = [0]
    found = _judged(sample.of(chosen))
    yield WeightedSum((0,), fit_weights(sample.of(chosen)), None)
    for scorer in range(1, sample.scores.shape[2]):
        tried, new = _without_useless(sample, [*chosen, scorer])
        p_value = chance_of(new.ranks - found.ranks, sample.triple_of)
        if is_beyond_chance(p_value):
            chosen, found = tried, new
        yield WeightedSum(tuple(tried), fit_weights(sample.of(tried), new.shrinkage), p_value)


class _Judged(NamedTuple):
    ranks: FloatArray  # (queries,) reciprocal, on held-out triples
    shrinkage: float  # of the weights by relation
    common: FloatArray  # (queries,) the ranks with common weights


def _judged(sample: Sample, common: FloatArray | None = None) -> _Judged:
    """Judge a sum by triples that its weights were not fitted to, with weights by relation if these are better.

    `common` is what `held_out_ranks` has found with the same weights for all relations, if that is known.
    """
    counts = np.unique(sample.queries.relations, return_counts=True)[1]
    tried = SHRINKAGES if len(counts) > 1 and counts.max() >= _FEWEST_QUERIES else SHRINKAGES[:1]
    found = common if common is not None and tried == SHRINKAGES[:1] else held_out_ranks(sample, tried)
    best = int(np.argmax([ranks.mean() for ranks in found]))
    return _Judged(found[best], tried[best], found[0])


def _without_useless(sample: Sample, scorers: list[int]) -> tuple[list[int], _Judged]:
    """Leave out, one after the other, earlier scorers without which the others do better on held-out triples."""
    found = _judged(sample.of(scorers))
    for scorer in scorers[:-1]:
        fewer = [other for other in scorers if other != scorer]
        common = held_out_ranks(sample.of(fewer))
        if common[0].mean() >= found.common.mean():  # else there is no need to look closer
            without = _judged(sample.of(fewer), common)
            if without.ranks.mean() >= found.ranks.mean():
                scorers, found = fewer, without
    return scorers, found


def held_out_ranks(sample: Sample, shrinkages: Sequence[float] = SHRINKAGES[:1]) -> FloatArray:
    """The reciprocal ranks of golds with weights that were fitted to other triples; shape (shrinkages, queries)."""
    found = np.empty((len(shrinkages), len(sample.queries)))
    fold_of = folds_of(sample.triple_of)
    for fold in range(FOLDS):
        held_out = fold_of == fold
        if held_out.any():
            learning, tested = sample.where(~held_out if not held_out.all() else held_out), sample.where(held_out)
            for number, weights in enumerate(_fit_all(learning, shrinkages)):
                found[number, held_out] = tested.reciprocal_ranks(weights.per_query(tested.queries))
    return found
