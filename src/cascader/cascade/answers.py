"""Answers to questions: the best entities, each with the trace of how every tier scored it."""

from dataclasses import dataclass

import numpy as np

from cascader.cascade.steps import Step
from cascader.graph import BoolArray, FloatArray, IntArray, KnownAnswers, Queries


@dataclass(frozen=True)
class Trace:
    """How one tier scored and ranked an answer."""

    tier: str
    score: float | None  # the tier's own; None: it did not score the answer
    blended: float  # with the scores of the tiers before it
    rank: int  # after this tier, among the entities that are not hidden
    alpha: float  # the weight of the tiers before it
    pruned: str = ""  # why the tier did not score it; empty: it did

    def in_words(self) -> str:
        """Describe the trace in one readable line."""
        if self.pruned:
            return f"{self.tier}: not read ({self.pruned}), rank {self.rank}"
        return f"{self.tier}: score {self.score:.3f}, weight {1 - self.alpha:.2f}, rank {self.rank}"


@dataclass(frozen=True)
class Answer:
    """An entity as the answer to a question."""

    entity: int
    rank: int  # among the entities that are not hidden
    score: float
    is_known: bool
    trace: tuple[Trace, ...]


def answers_of(steps: list[Step], top: int, *, hidden: BoolArray, is_known: BoolArray) -> list[list[Answer]]:
    """List each query's `top` answers, best first, leaving out `hidden` ones; both masks are (queries, entities)."""
    orders = [_order(step.blended, hidden) for step in steps]
    ranks = [_ranks(order) for order in orders]
    shown = np.minimum(top, (~hidden).sum(axis=1))
    return [
        [_answer(steps, ranks, row, int(entity), bool(is_known[row, entity])) for entity in order[:count]]
        for row, (order, count) in enumerate(zip(orders[-1], shown, strict=True))
    ]


def trace_of(steps: list[Step], ranks: list[IntArray], row: int, entity: int) -> tuple[Trace, ...]:
    """Trace an entity through every tier, in order."""
    return tuple(
        _trace(step, row, entity, rank=int(rank[row, entity]), rank_before=int(before[row, entity]))
        for step, rank, before in zip(steps, ranks, [ranks[0], *ranks], strict=False)
    )


def _answer(steps: list[Step], ranks: list[IntArray], row: int, entity: int, is_known: bool) -> Answer:
    return Answer(
        entity=entity,
        rank=int(ranks[-1][row, entity]),
        score=float(steps[-1].blended[row, entity]),
        is_known=is_known,
        trace=trace_of(steps, ranks, row, entity),
    )


def _trace(step: Step, row: int, entity: int, *, rank: int, rank_before: int) -> Trace:
    blended, alpha = float(step.blended[row, entity]), float(step.alpha[row])
    if step.candidates is None:
        assert step.scores is not None  # noqa: S101 - a tier that scores all entities has scores
        return Trace(step.tier, float(step.scores[row, entity]), blended, rank, alpha)
    kept = step.candidates[row]
    places = np.flatnonzero(kept == entity)
    if step.scores is not None and len(places):
        score = float(step.scores[step.candidates.offsets[row] + places[0]])
        return Trace(step.tier, score, blended, rank, alpha)
    why = f"rank {rank_before} before it, the best {len(kept)} were read" if step.complete else "time ran out"
    return Trace(step.tier, None, blended, rank, alpha, pruned=why)


def known_mask(queries: Queries, known: KnownAnswers | None, shape: tuple[int, ...]) -> BoolArray:
    """Mark the known answers of each query; shape (queries, entities)."""
    is_known = np.zeros(shape, dtype=bool)
    if known is not None:
        answers = known.of(queries)
        is_known[answers.rows, answers.ids] = True
    return is_known


def _order(scores: FloatArray, hidden: BoolArray) -> IntArray:
    """Order the entities best first, ties by index, hidden ones last; shape (queries, entities)."""
    return np.argsort(np.where(hidden, np.inf, -scores), axis=1, kind="stable")


def _ranks(order: IntArray) -> IntArray:
    """Turn an order into the rank of each entity, from 1; shape (queries, entities)."""
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return ranks
