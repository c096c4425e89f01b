"""Answers to questions: the best entities, each with the trace of how every tier scored it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascader.cascade.cascade import Step
from cascader.graph import BoolArray, FloatArray, IntArray, KnownAnswers, Queries

#: How many entities below an answer are kept with it, to say what spoke against them.
_RUNNERS_UP = 3


@dataclass(frozen=True)
class Trace:
    """How one tier scored and ranked an answer."""

    tier: str
    score: float | None  # the tier's own; None: it did not score the answer
    blended: float  # with the scores of the tiers before it
    rank: int  # after this tier, among the entities that are not hidden
    share: float  # of the tier in the answer's final score, from 0 to 1; all shares add up to 1
    pruned: str = ""  # why the tier did not score it; empty: it did

    def in_words(self) -> str:
        """Describe the trace in a few words.

        >>> Trace("rules", score=-0.7, blended=-1.2, rank=3, share=0.31).in_words()
        'rank 3 after rules (counts for 31 %)'
        """
        return f"rank {self.rank:,} after {self.tier} ({self._weight()})"

    def _weight(self) -> str:
        if self.pruned:
            return f"not read: {self.pruned}"
        if self.share == 0:
            return "does not count here"
        return "counts for less than 1 %" if self.share < 0.005 else f"counts for {100 * self.share:.0f} %"


@dataclass(frozen=True)
class Answer:
    """An entity as the answer to a question."""

    entity: int
    rank: int  # among the entities that are not hidden
    score: float
    is_known: bool
    trace: tuple[Trace, ...]
    runners_up: tuple[int, ...] = ()  # the entities that rank right below it


def answers_of(steps: list[Step], top: int, *, hidden: BoolArray, is_known: BoolArray) -> list[list[Answer]]:
    """List each query's `top` answers, best first, leaving out `hidden` ones; both masks are (queries, entities)."""
    return [_row_answers(steps, row, top, hidden[row], is_known[row]) for row in range(len(hidden))]


def _row_answers(steps: list[Step], row: int, top: int, hidden: BoolArray, is_known: BoolArray) -> list[Answer]:
    """List the best answers to one query; only these are ordered, not all entities."""
    best = best_places(steps[-1].blended[row], ~hidden, top + _RUNNERS_UP)
    ranks = np.stack([_ranks(step.blended[row], ~hidden, best[:top]) for step in steps], axis=1)
    return [
        Answer(
            entity=entity,
            rank=int(ranks[place, -1]),
            score=float(steps[-1].blended[row, entity]),
            is_known=bool(is_known[entity]),
            trace=trace_of(steps, ranks[place].tolist(), row, entity),
            runners_up=tuple(best[place + 1 : place + 1 + _RUNNERS_UP].tolist()),
        )
        for place, entity in enumerate(best[:top].tolist())
    ]


def trace_of(steps: list[Step], ranks: list[int], row: int, entity: int) -> tuple[Trace, ...]:
    """Trace an entity through every tier, in order; it has these ranks after each."""
    own = [_own_score(step, row, entity) for step in steps]
    alphas = [float(step.alpha[row]) if score is not None else 1.0 for step, score in zip(steps, own, strict=True)]
    return tuple(
        Trace(
            tier=step.tier,
            score=score,
            blended=float(step.blended[row, entity]),
            rank=rank,
            share=share,
            pruned="" if score is not None else _why_pruned(step, row, rank_before=before),
        )
        for step, score, share, rank, before in zip(steps, own, shares(alphas), ranks, [ranks[0], *ranks], strict=False)
    )


def shares(alphas: Sequence[float]) -> list[float]:
    """Turn the alphas of a chain, that of the first tier being 0, into the share of each tier in the final score.

    >>> shares([0.0, 0.5, 0.75])  # the third tier gets a quarter, and the first two share the rest
    [0.375, 0.375, 0.25]
    """
    found, left = [], 1.0
    for alpha in reversed(alphas):
        found.append((1 - alpha) * left)
        left *= alpha
    return found[::-1]


def _own_score(step: Step, row: int, entity: int) -> float | None:
    """The tier's own score of an entity; None if it did not score it."""
    if step.scores is None:
        return None
    if step.candidates is None:
        return float(step.scores[row, entity])
    places = np.flatnonzero(step.candidates[row] == entity)
    return float(step.scores[step.candidates.offsets[row] + places[0]]) if len(places) else None


def _why_pruned(step: Step, row: int, rank_before: int) -> str:
    if not step.complete:
        return "time ran out"
    count = 0 if step.candidates is None else len(step.candidates[row])
    return f"rank {rank_before} before it, the best {count} were read"


def known_mask(queries: Queries, known: KnownAnswers | None, shape: tuple[int, ...]) -> BoolArray:
    """Mark the known answers of each query; shape (queries, entities)."""
    is_known = np.zeros(shape, dtype=bool)
    if known is not None:
        answers = known.of(queries)
        is_known[answers.rows, answers.ids] = True
    return is_known


def best_places(scores: FloatArray, is_shown: BoolArray, count: int) -> IntArray:
    """Find the best `count` of the entities that are shown, best first, ties by index; two (entities,) arrays.

    >>> best_places(np.array([0.5, 3.0, 0.5, 2.0]), np.array([True, False, True, True]), 2).tolist()
    [3, 0]
    """
    shown = np.flatnonzero(is_shown)
    values = scores[shown]
    if count < len(values):
        lowest = np.partition(values, len(values) - count)[len(values) - count]
        shown = shown[values >= lowest]
        values = scores[shown]
    return shown[np.argsort(-values, kind="stable")[:count]]


def _ranks(scores: FloatArray, is_shown: BoolArray, entities: IntArray) -> IntArray:
    """Rank some entities among all that are shown, from 1, ties by index; shape (entities,)."""
    values, own = np.sort(scores[is_shown]), scores[entities]
    above = len(values) - np.searchsorted(values, own, side="right")
    tied = np.searchsorted(values, own, side="right") - np.searchsorted(values, own, side="left") > 1
    for place in np.flatnonzero(tied).tolist():
        before = slice(0, int(entities[place]))
        above[place] += np.count_nonzero((scores[before] == own[place]) & is_shown[before])
    return above + 1
