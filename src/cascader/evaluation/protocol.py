"""Rank every gold answer of a split with any scorer, block by block."""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascader.display import progress
from cascader.errors import DataError, SettingsError
from cascader.evaluation.evaluation import FILTERINGS, Evaluation, Filtering
from cascader.evaluation.metrics import GoldRanks, Ranks, rank_golds
from cascader.graph import SPLITS, Candidates, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries, SplitName
from cascader.scoring.scorer import Scorer

#: The most memory for one block of dense scores, so that memory does not grow with the number of queries.
_BLOCK_BYTES = 64 << 20
_BLOCK_QUESTIONS = 1024


def evaluate(
    scorer: Scorer,
    kg: KnowledgeGraph,
    split: SplitName = "test",
    *,
    filtering: Filtering = "standard",
    name: str = "",
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Ask for the tail and the head of every triple of `split`, and rank the gold answers.

    Other true answers, from any split, do not count against the gold one; with "strict" filtering, those of test do
    when valid is evaluated. `seed` is the one the scorer was fitted with; it also draws the intervals. `about`
    describes the scorer. All three are stored with the figures. A question with several gold answers is scored once.

    >>> from cascader import Frequency, KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")], test=[("b", "r", "c")])
    >>> round(evaluate(Frequency().fit(kg), kg).mrr, 3)
    0.667
    """
    started = time.perf_counter()
    queries = queries_of(kg, split)
    known = kg.known(filtered_splits(split, filtering))
    ranks = _rank_all(scorer, queries, known)
    return Evaluation.of(
        kg,
        queries,
        ranks,
        name=name or type(scorer).__name__.lower(),
        split=split,
        filtering=filtering,
        seed=seed,
        seconds=time.perf_counter() - started,
        peak_memory_bytes=_peak_memory_bytes(),
        about=about or {},
    )


def queries_of(kg: KnowledgeGraph, split: SplitName) -> Queries:
    """Return the queries that ask for the tail and the head of every triple of a split."""
    triples = kg.split(split)
    if len(triples) == 0:
        raise DataError(
            f"{kg.name} has no {split} triples to evaluate on. Add a {split} file, or have some triples held out."
        )
    return Queries.from_triples(triples).with_known(kg.known_before(split))


def mean_reciprocal_rank(scorer: Scorer, queries: Queries, known: KnownAnswers) -> float:
    """Compute only the filtered MRR on any queries, for a quick check during training."""
    return float(reciprocal_ranks(scorer, queries, known).mean())


def reciprocal_ranks(scorer: Scorer, queries: Queries, known: KnownAnswers) -> FloatArray:
    """Compute the reciprocal filtered rank of each gold answer; shape (queries,)."""
    return 1 / _rank_all(scorer, queries, known).filtered.mean


def filtered_splits(split: SplitName, filtering: Filtering = "standard") -> tuple[SplitName, ...]:
    """Return the splits whose answers are filtered when `split` is evaluated."""
    if filtering not in FILTERINGS:
        raise SettingsError(f"filtering is {filtering!r}, expected one of: {', '.join(FILTERINGS)}.")
    return SPLITS if filtering == "standard" or split == "test" else ("train", "valid")


def _rank_all(scorer: Scorer, queries: Queries, known: KnownAnswers) -> GoldRanks:
    """Rank block by block, then restore the order of the queries."""
    places: list[IntArray] = []
    parts: list[GoldRanks] = []
    for block in iter_blocks(queries, known):
        places.append(block.places)
        parts.append(block.rank(scorer.score_all(block.questions)))
    back = np.argsort(np.concatenate(places))
    return GoldRanks(
        filtered=Ranks.concatenate([part.filtered for part in parts])[back],
        raw=Ranks.concatenate([part.raw for part in parts])[back],
    )


@dataclass(frozen=True, eq=False)
class Block:
    """A block of distinct questions, and the queries that ask them."""

    questions: Queries
    places: IntArray  # (queries,) the position of each query among all queries
    rows: IntArray  # (queries,) the row of its question in this block
    golds: IntArray  # (queries,)
    known: Candidates  # of each query
    entity_count: int

    def rank(self, scores: FloatArray) -> GoldRanks:
        """Rank the gold answers in the dense scores of the questions, (questions, entities)."""
        expected = (len(self.questions), self.entity_count)
        if scores.shape != expected:
            raise DataError(
                f"the scorer returned scores of shape {scores.shape}, expected {expected}: "
                "one row per question, one column per entity."
            )
        return rank_golds(scores, self.rows, self.golds, self.known)


def iter_blocks(queries: Queries, known: KnownAnswers, description: str = "ranking") -> Iterator[Block]:
    """Yield the distinct questions of `queries` in blocks, as many at a time as memory allows."""
    questions, question_of = queries.unique()
    order = np.argsort(question_of, kind="stable")
    size = _block_size(known.entity_count)
    with progress(description, total=len(questions), unit="questions") as advance:
        for start in range(0, len(questions), size):
            first, last = np.searchsorted(question_of[order], [start, start + size])
            places = order[first:last]
            asking = queries[places]
            yield Block(
                questions=questions[start : start + size],
                places=places,
                rows=question_of[places] - start,
                golds=asking.required_golds(),
                known=known.of(asking),
                entity_count=known.entity_count,
            )
            advance(min(size, len(questions) - start))


def _block_size(entity_count: int) -> int:
    return max(1, min(_BLOCK_QUESTIONS, _BLOCK_BYTES // (4 * entity_count)))


def _peak_memory_bytes() -> int | None:
    """Return the peak memory of this process so far; None if the system does not report it."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
