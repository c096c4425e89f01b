"""Rank every gold answer of a split, block by block, whatever the scorer."""

import sys
import time

import numpy as np

from cascader.errors import DataError
from cascader.evaluation.ranks import GoldRanks, Ranks, rank_golds
from cascader.evaluation.record import Evaluation
from cascader.graph import FloatArray, KnowledgeGraph, KnownAnswers, Queries, SplitName
from cascader.progress import progress
from cascader.scorer import Scorer

#: What one block of dense scores may take, so that memory grows with the entities and never with the queries.
_BLOCK_BYTES = 64 << 20
_BLOCK_QUESTIONS = 1024


def evaluate(
    scorer: Scorer, kg: KnowledgeGraph, split: SplitName = "test", *, name: str = "", seed: int = 0
) -> Evaluation:
    """Ask for the tail and the head of every triple of `split`, and rank the gold answers.

    Known answers are filtered with train and valid, and with test only when test is what is evaluated: a figure on
    valid knows nothing of test. `seed` is the one the scorer was fitted with; it is kept with the figures, and
    draws the intervals. A question with several gold answers is scored once.
    """
    triples = kg.split(split)
    if len(triples) == 0:
        raise DataError(f"{kg.name} has no {split} triples to evaluate on. Add a {split} file, or let us split.")
    started = time.perf_counter()
    queries = Queries.from_triples(triples)
    known = kg.known(("train", "valid", "test") if split == "test" else ("train", "valid"))
    ranks = _rank_all(scorer, queries, known)
    return Evaluation.of(
        kg,
        queries,
        ranks,
        name=name or type(scorer).__name__.lower(),
        split=split,
        seed=seed,
        seconds=time.perf_counter() - started,
        peak_memory_bytes=_peak_memory_bytes(),
    )


def _rank_all(scorer: Scorer, queries: Queries, known: KnownAnswers) -> GoldRanks:
    """Rank in the order of the questions, then return to the order of the queries."""
    questions, question_of = queries.questions()
    order = np.argsort(question_of, kind="stable")
    question_of, ordered = question_of[order], queries[order]
    block = _block_size(known.entity_count)
    parts: list[GoldRanks] = []
    with progress("ranking", total=len(questions)) as advance:
        for start in range(0, len(questions), block):
            asked = questions[start : start + block]
            scores = _checked(scorer.score_all(asked), len(asked), known.entity_count)
            rows = slice(*np.searchsorted(question_of, [start, start + block]))
            golds = ordered[rows].required_golds()
            parts.append(rank_golds(scores, question_of[rows] - start, golds, known.of(ordered[rows])))
            advance(len(asked))
    back = np.argsort(order)
    return GoldRanks(
        filtered=Ranks.concatenate([part.filtered for part in parts])[back],
        raw=Ranks.concatenate([part.raw for part in parts])[back],
    )


def _block_size(entity_count: int) -> int:
    return max(1, min(_BLOCK_QUESTIONS, _BLOCK_BYTES // (4 * entity_count)))


def _checked(scores: FloatArray, questions: int, entities: int) -> FloatArray:
    if scores.shape != (questions, entities):
        raise DataError(
            f"the scorer returned scores of shape {scores.shape}, expected {(questions, entities)}: "
            "a row for each question, a column for each entity."
        )
    return scores


def _peak_memory_bytes() -> int | None:
    """The most memory this process has held so far; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
