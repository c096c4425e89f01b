"""The ranks of gold answers, the metrics that are means over them or over slices, and how sure such a mean is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascader.display import html_table
from cascader.errors import DataError
from cascader.graph import Candidates, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.wording import counted


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of gold answers, 1 being the best.

    `optimistic` ranks a gold answer before the entities that it ties with, `pessimistic` after them. `mean` is the
    one to report: the optimistic rank flatters a model that gives everything the same score (arXiv:1911.03903).
    """

    optimistic: FloatArray  # (golds,)
    pessimistic: FloatArray  # (golds,)

    @property
    def mean(self) -> FloatArray:
        """The expected rank if ties are broken at random; shape (golds,)."""
        return (self.optimistic + self.pessimistic) / 2

    @classmethod
    def concatenate(cls, parts: Sequence["Ranks"]) -> "Ranks":
        """The ranks of all parts in one."""
        return cls(
            np.concatenate([part.optimistic for part in parts]),
            np.concatenate([part.pessimistic for part in parts]),
        )

    def __getitem__(self, rows: IntArray) -> "Ranks":
        return Ranks(self.optimistic[rows], self.pessimistic[rows])


@dataclass(frozen=True, eq=False)
class GoldRanks:
    """Ranks in the two usual settings: `filtered` ignores other known answers, `raw` does not."""

    filtered: Ranks
    raw: Ranks


def rank_golds(scores: FloatArray, rows: IntArray, golds: IntArray, known: Candidates) -> GoldRanks:
    """Rank gold answers in a block of dense scores, which is not modified.

    `scores` is (questions, entities). Gold answer i is entity `golds[i]` for question `rows[i]`; the known answers of
    that question, which may include it, are `known[i]`.

    >>> scores = np.array([[10.0, 10.0, 10.0, 11.0, 9.0]])
    >>> ranks = rank_golds(scores, np.array([0]), np.array([0]), Candidates.from_lists([[0, 3]]))
    >>> ranks.raw.mean.tolist(), ranks.filtered.mean.tolist()
    ([3.0], [2.0])
    """
    gold_scores = scores[rows, golds]
    _check_no_nan(scores)
    above, level = _count_all(scores, rows, gold_scores)
    known_above, known_level = _count_known(scores, rows, golds, gold_scores, known)
    return GoldRanks(
        filtered=_ranks(above - known_above, level - known_level),
        raw=_ranks(above, level),
    )


def _ranks(above: IntArray, level: IntArray) -> Ranks:
    """The ranks, given how many entities score higher and how many the same, including the gold answer."""
    return Ranks(optimistic=(above + 1).astype(np.float64), pessimistic=(above + level).astype(np.float64))


def _count_all(scores: FloatArray, rows: IntArray, gold_scores: FloatArray) -> tuple[IntArray, IntArray]:
    """How many entities score higher than, and the same as, each gold answer."""
    above = np.empty(len(rows), dtype=np.int64)
    not_below = np.empty(len(rows), dtype=np.int64)
    # One row at a time: unlike a whole block, it stays in the cache for both counts.
    for i, (row, gold_score) in enumerate(zip(rows, gold_scores, strict=True)):
        above[i] = np.count_nonzero(scores[row] > gold_score)
        not_below[i] = np.count_nonzero(scores[row] >= gold_score)
    return above, not_below - above


def _count_known(
    scores: FloatArray, rows: IntArray, golds: IntArray, gold_scores: FloatArray, known: Candidates
) -> tuple[IntArray, IntArray]:
    """How many known answers other than the gold one score higher than, and the same as, it."""
    owner = known.rows
    others = known.ids != golds[owner]
    owner, ids = owner[others], known.ids[others]
    margins = scores[rows[owner], ids], gold_scores[owner]
    above = np.bincount(owner[np.greater(*margins)], minlength=len(golds))
    level = np.bincount(owner[np.equal(*margins)], minlength=len(golds))
    return above, level


def _check_no_nan(scores: FloatArray) -> None:
    # min() propagates NaN, so one cheap pass finds it. Comparisons with NaN are False and would improve the rank.
    if len(scores) and np.isnan(scores.min()):
        row, entity = np.argwhere(np.isnan(scores))[0]
        raise DataError(
            f"the scorer returned NaN ({np.isnan(scores).sum():,} of {scores.size:,} scores, the first for entity "
            f"{entity} of question {row} in its block). Every entity needs a score; use -inf to rank it last."
        )


#: Every metric is the mean of one number per query, computed from its rank alone.
METRICS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "mrr": lambda ranks: 1 / ranks,
    "hits@1": lambda ranks: (ranks <= 1).astype(np.float64),
    "hits@3": lambda ranks: (ranks <= 3).astype(np.float64),
    "hits@10": lambda ranks: (ranks <= 10).astype(np.float64),
    "mean_rank": lambda ranks: ranks.astype(np.float64),
}


@dataclass(frozen=True, repr=False)
class Metrics:
    """The mean of each metric over a set of queries.

    >>> Metrics.of(np.array([1.0, 4.0]))["mrr"]
    0.625
    """

    queries: int
    values: Mapping[str, float]

    @classmethod
    def of(cls, ranks: FloatArray) -> "Metrics":
        """The metrics of these ranks, one per query."""
        if len(ranks) == 0:
            raise DataError("there are no ranks to average. Evaluate a split that has triples.")
        return cls(len(ranks), {name: float(per_query(ranks).mean()) for name, per_query in METRICS.items()})

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.values.items())
        return f"Metrics({figures}, {counted(self.queries, 'query')})"

    def _repr_html_(self) -> str:
        row = [*(f"{value:.4f}" for value in self.values.values()), f"{self.queries:,}"]
        return html_table([*self.values, "queries"], [row])

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def as_dict(self) -> dict[str, Any]:
        """The metrics as written to a result file."""
        return {"queries": self.queries, **self.values}


CONFIDENCE = 0.95
_RESAMPLES = 1000
_PERMUTATIONS = 9999
_BATCH_NUMBERS = 4_000_000  # drawn at once: bounds memory for any number of triples

Interval = tuple[float, float]
Values = NDArray[np.float64]


def mean_intervals(values: Values, seed: int) -> list[Interval]:
    """The percentile bootstrap interval of each row's mean; `values` is (metrics, triples)."""
    from scipy.stats import bootstrap

    if values.shape[1] < 2:  # nothing to resample
        return [(float(mean), float(mean)) for mean in values.mean(axis=1)]
    result = bootstrap(
        (values,),
        np.mean,
        axis=1,
        n_resamples=_RESAMPLES,
        batch=_batch(values),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    lows, highs = result.confidence_interval
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def paired_p_values(differences: Values, seed: int) -> list[float]:
    """The p-value of each row's mean difference, by a two-sided paired randomization test.

    If two models are equally good, swapping them on any triple merely flips a sign. The signs are drawn as bits and
    applied in one matrix product: what takes `scipy.stats.permutation_test` minutes takes this a second.
    """
    rng = np.random.default_rng(seed)
    metrics, triples = differences.shape
    # With a tolerance for rounding, so that a permutation equal to the observation counts as reaching it.
    observed = np.abs(differences.sum(axis=1)) * (1 - 1e-12)
    reached = np.zeros(metrics, dtype=np.int64)
    for start in range(0, _PERMUTATIONS, _batch(differences)):
        count = min(_batch(differences), _PERMUTATIONS - start)
        bits = rng.integers(0, 256, size=(count, -(-triples // 8)), dtype=np.uint8)
        signs = np.unpackbits(bits, axis=1, count=triples) * 2.0 - 1  # (permutations, triples)
        reached += (np.abs(signs @ differences.T) >= observed).sum(axis=0)
    return ((reached + 1) / (_PERMUTATIONS + 1)).tolist()


def _batch(values: Values) -> int:
    return max(1, _BATCH_NUMBERS // values.shape[1])


#: With more answers per question than this, a side counts as "n" (Bordes et al., 2013).
_MANY = 1.5
_DEGREES = [0, 1, 3, 10, 30, 100, 300]

Labels = NDArray[np.str_ | np.object_]


def slices_of(kg: KnowledgeGraph, queries: Queries) -> dict[str, Labels]:
    """The labels of the queries for each way to slice them; each array has shape (queries,)."""
    ways: dict[str, Callable[[KnowledgeGraph, Queries], Labels]] = {
        "side": _side,
        "relation": _relation,
        "relation_kind": _relation_kind,
        "gold_degree": _gold_degree,
        "seen_in_train": _seen_in_train,
    }
    return {name: label(kg, queries) for name, label in ways.items()}


def _side(kg: KnowledgeGraph, queries: Queries) -> Labels:
    return np.where(queries.predicts_tail, "tail", "head")


def _relation(kg: KnowledgeGraph, queries: Queries) -> Labels:
    # Objects, not fixed-width strings, in which one long id would make every element as wide.
    return np.array([relation.id for relation in kg.relations], dtype=object)[queries.relations]


def _relation_kind(kg: KnowledgeGraph, queries: Queries) -> Labels:
    return relation_kinds(kg)[queries.relations]


def relation_kinds(kg: KnowledgeGraph) -> Labels:
    """1-1, 1-n, n-1 or n-n for each relation, by its answers per question in train; shape (relations,).

    >>> kg = KnowledgeGraph.from_triples([("Ann", "born in", "Rome"), ("Bob", "born in", "Rome")])
    >>> relation_kinds(kg).tolist()
    ['n-1']
    """
    questions, question_of = Queries.from_triples(kg.train).unique()
    answers = np.bincount(question_of, minlength=len(questions))
    tails_of_a_head, heads_of_a_tail = (
        _mean_by(questions.relations[rows], answers[rows], len(kg.relations))
        for rows in (questions.predicts_tail, ~questions.predicts_tail)
    )
    kinds = np.char.add(
        np.where(heads_of_a_tail > _MANY, "n-", "1-"),
        np.where(tails_of_a_head > _MANY, "n", "1"),
    )
    return np.where(np.isnan(tails_of_a_head), "not in train", kinds)


def _mean_by(groups: IntArray, values: IntArray, group_count: int) -> NDArray[np.float64]:
    """The mean of `values` in each group, NaN for an empty one."""
    counts = np.bincount(groups, minlength=group_count)
    sums = np.bincount(groups, weights=values, minlength=group_count)
    return np.divide(sums, counts, out=np.full(group_count, np.nan), where=counts > 0)


def _gold_degree(kg: KnowledgeGraph, queries: Queries) -> Labels:
    names = [
        f"{low}-{high - 1}" if high - low > 1 else f"{low}" for low, high in zip(_DEGREES, _DEGREES[1:], strict=False)
    ]
    degrees = kg.degrees()[queries.required_golds()]
    return np.array([*names, f"{_DEGREES[-1]}+"])[np.digitize(degrees, _DEGREES) - 1]


def _seen_in_train(kg: KnowledgeGraph, queries: Queries) -> Labels:
    seen = kg.degrees() > 0
    anchor, gold = seen[queries.anchors], seen[queries.required_golds()]
    return np.select([anchor & gold, anchor, gold], ["both", "anchor only", "gold only"], "neither")
