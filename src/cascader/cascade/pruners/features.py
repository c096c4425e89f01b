"""What a row of scores tells about how far down its gold answer may stand."""

from typing import Literal

import numpy as np

from cascader.graph import Array, FloatArray, IntArray, Queries

FeatureName = Literal["compact", "scores"]

#: The gaps between the scores at these ranks say how steeply a row falls; the same ranks for graphs of every size.
_RANKS = 2 ** np.arange(11)
_ROWS_AT_ONCE = 64


def describe(queries: Queries, scores: FloatArray, name: FeatureName) -> FloatArray:
    """The features of each query, (queries, features), each row from its own scores alone."""
    of_rows = {"compact": _compact, "scores": _sorted_scores}[name]
    # A few rows at a time: they are copied and sorted, and that may take several times their memory.
    starts = range(0, len(queries), _ROWS_AT_ONCE)
    parts = [of_rows(queries[at : at + _ROWS_AT_ONCE], scores[at : at + _ROWS_AT_ONCE]) for at in starts]
    return np.concatenate(parts) if parts else of_rows(queries, scores)


def asked(queries: Queries) -> IntArray:
    """One number for a relation and the side that is asked for; shape (queries,)."""
    return 2 * queries.relations.astype(np.int64) + queries.predicts_tail


def _compact(queries: Queries, scores: FloatArray) -> FloatArray:
    """How far the best stand out, how evenly the top shares its probability, how many are alive, the side."""
    standard = _standardized(scores)
    alive = np.isfinite(standard).sum(axis=1)
    top = _best(standard, int(_RANKS[-1]))  # (queries, top)
    # Where fewer are alive than a rank asks for, the last of them stands in: the gaps behind it are nothing.
    places = np.minimum(_RANKS, np.maximum(alive, 1)[:, None]) - 1
    at_ranks = _finite(np.take_along_axis(top, places, axis=1))
    gaps = np.log1p(at_ranks[:, :-1] - at_ranks[:, 1:])
    columns = [at_ranks[:, 0], _entropy(_best(scores.astype(np.float64), int(_RANKS[-1]))), np.log1p(alive)]
    return np.column_stack([gaps, *columns, queries.predicts_tail])


def _sorted_scores(queries: Queries, scores: FloatArray) -> FloatArray:
    """The paper's features: all scores, best first, standardized; what is masked counts as the lowest of the others."""
    top_candidates = -np.sort(-_standardized(scores), axis=1)
    lowest = np.min(top_candidates, axis=1, where=np.isfinite(top_candidates), initial=np.inf)
    return _finite(np.where(np.isfinite(top_candidates), top_candidates, lowest[:, None])).astype(np.float32)


def _standardized(scores: FloatArray) -> FloatArray:
    """Each row's scores with mean 0 and deviation 1 over what is alive; all alike are all 0, the masked stay -inf."""
    alive = np.isfinite(scores)
    count = np.maximum(alive.sum(axis=1), 1)
    mean = np.where(alive, scores, 0).sum(axis=1, dtype=np.float64) / count
    centred = np.where(alive, scores - mean[:, None], 0.0)
    deviation = np.sqrt((centred**2).sum(axis=1) / count)
    # A deviation that is rounding noise would blow noise up.
    is_flat = deviation <= 1e-6 * np.abs(mean)
    return np.where(alive, centred / np.where(is_flat, np.inf, deviation)[:, None], -np.inf)


def _best(scores: FloatArray, count: int) -> FloatArray:
    """The best scores of each row, best first, filled up with -inf; shape (queries, count)."""
    missing = max(0, count - scores.shape[1])
    if missing:
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
    return -np.sort(-np.partition(scores, scores.shape[1] - count, axis=1)[:, -count:], axis=1)


def _entropy(best: FloatArray) -> Array:
    """Of the softmax over each row's best scores, in nats: 0 if one has it all; shape (queries,)."""
    exponentials = np.exp(_finite(best - _finite(best[:, :1])) * np.isfinite(best)) * np.isfinite(best)
    shares = exponentials / np.maximum(exponentials.sum(axis=1, keepdims=True), 1)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)


def _finite(values: FloatArray) -> FloatArray:
    """Nothing where there is nothing: rows in which all is masked."""
    return np.where(np.isfinite(values), values, 0.0)
