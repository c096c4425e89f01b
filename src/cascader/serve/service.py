"""Questions in, answers out: from what a client sends to what it gets."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascader.cascade import Deadline
from cascader.errors import CascaderError, DataError, UnknownNameError
from cascader.graph import Entity, Queries
from cascader.progress import no_progress
from cascader.runs import Answered, Predictor, Run, Verdict
from cascader.serve.batcher import Batcher
from cascader.serve.budget_levels import Stop, stops_of, within_pairs, within_seconds
from cascader.serve.counting_scorer import Counted
from cascader.serve.limits import Batching, Limits
from cascader.serve.naming import Names
from cascader.serve.problems import problem_of
from cascader.serve.refusals import LateError
from cascader.serve.responses import Composer, verdict_body
from cascader.serve.schemas import Answers, Ask, Problem, Verdicts

#: Triples that are judged at once, before others get their turn.
_TRIPLES_AT_ONCE = 20


@dataclass(frozen=True)
class Kind:
    """What is answered as one block: questions within the same budget; `alone` tells apart what cannot be."""

    stop: int
    with_known: bool
    alone: object = None


@dataclass(frozen=True, eq=False)
class Resolved:
    """A question by indices."""

    anchor: int
    relation: int
    predicts_tail: bool
    top: int
    started: float
    seconds: float | None  # that it may take from then on
    new: Entity | None


class Desk:
    """Answers with a run that is loaded once, in one thread."""

    def __init__(self, run: Run, limits: Limits, batching: Batching) -> None:
        self.run, self.kg, self._limits, self._batching = run, run.kg, limits, batching
        self.names = Names(run.kg)
        self.stops = stops_of(run)
        best = self.stops[-1].answering
        self._judging = run.judging(best) if best.calibration is not None else None
        self._composer = Composer(run)
        self._counted = _counted_of(self.stops)
        self._batcher = Batcher(self._work, self._most, batching, limits.waiting)

    def close(self) -> None:
        """Answer no more, and write the scores that are new."""
        self._batcher.close()
        for counted in self._counted:
            counted.write()

    # Asking.

    async def answer(self, ask: Ask) -> Answers:
        """The answers to a question."""
        kind, resolved = await asyncio.to_thread(self._resolved, ask)
        return await self._in_time(self._batcher.submit(kind, resolved), resolved.started)

    async def answer_batch(self, asks: Sequence[Ask]) -> list[Answers | Problem]:
        """The answers to several questions; one that cannot be answered does not keep the others from it."""
        return list(await asyncio.gather(*(self._answer_or_problem(ask) for ask in asks)))

    async def _answer_or_problem(self, ask: Ask) -> Answers | Problem:
        try:
            return await self.answer(ask)
        except CascaderError as error:
            return problem_of(error).body

    async def classify(self, triples: Sequence[tuple[str, str, str]]) -> Verdicts:
        """Whether triples are true."""
        started = time.monotonic()
        if self._judging is None or self._judging.calibration is None:
            raise DataError(
                f"{self.kg.name} has no valid triples, so there are no probabilities to judge by. Fit again with some "
                "held back."
            )
        rows = await asyncio.to_thread(self._indices, triples)
        parts = [rows[i : i + _TRIPLES_AT_ONCE] for i in range(0, len(rows), _TRIPLES_AT_ONCE)]
        kind = Kind(len(self.stops) - 1, with_known=False, alone="verdicts")
        found: list[Verdict] = []
        for part in parts:  # one after the other: in between, others get their answers
            found += await self._in_time(self._batcher.submit(kind, part), started)
        threshold = self._judging.calibration.threshold
        assert threshold is not None  # noqa: S101 - judging has chosen one
        return Verdicts(verdicts=[verdict_body(verdict) for verdict in found], threshold=threshold.probability)

    async def _in_time(self, future: Future[Any], started: float) -> Any:  # noqa: ANN401 - what the future holds
        left = self._limits.seconds - (time.monotonic() - started)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), max(left, 0.001))
        except TimeoutError:
            raise LateError(
                f"no answer within {self._limits.seconds:g} seconds, which is the limit. Ask for less at once, or with "
                "a smaller budget, or later."
            ) from None

    def _resolved(self, ask: Ask) -> tuple[Kind, Resolved]:
        relation = self.names.relation(ask.relation)
        new = None if ask.new is None else Entity(f"new:{ask.new.name}", ask.new.name, ask.new.description)
        anchor = 0 if ask.entity is None else self.names.entity(ask.entity)
        budget, started = ask.budget, time.monotonic()
        seconds = None if budget is None else budget.seconds
        stop = self._stop(None if budget is None else budget.pairs, seconds)
        alone = object() if new is not None or seconds is not None else None
        resolved = Resolved(anchor, relation, ask.side == "tail", ask.top, started, seconds, new)
        return Kind(stop, ask.with_known, alone), resolved

    def _stop(self, pairs: float | None, seconds: float | None) -> int:
        fitting = [len(self.stops) - 1]
        if pairs is not None:
            fitting.append(within_pairs(self.stops, pairs))
        if seconds is not None:
            fitting.append(within_seconds(self.stops, seconds))
        return min(fitting)

    def _indices(self, triples: Sequence[tuple[str, str, str]]) -> list[tuple[int, int, int]]:
        rows = []
        for number, triple in enumerate(triples, start=1):
            try:
                rows.append(self.names.triple(*triple))
            except UnknownNameError as error:
                raise UnknownNameError(f"triple {number}: {error}", error.candidates) from None
        return rows

    # Predictor, in the one thread.

    def _most(self, kind: Kind) -> int:
        """Only so many that others need not wait long."""
        at_once = int(self._batching.block_seconds / max(self.stops[kind.stop].seconds, 1e-9))
        return max(1, min(self._batching.most, at_once))

    def _work(self, kind: Kind, asked: list[Any]) -> list[Any]:
        with no_progress():
            if kind.alone == "verdicts":
                return [self._verdicts(part) for part in asked]
            return self._answers(kind, asked)

    def _verdicts(self, rows: list[tuple[int, int, int]]) -> list[Verdict]:
        assert self._judging is not None  # noqa: S101 - who asks has looked
        return self._judging.classify(np.array(rows, dtype=np.int32))

    def _answers(self, kind: Kind, asked: list[Resolved]) -> list[Answers]:
        stop = self.stops[kind.stop]
        answering = self._answering(stop, asked[0])
        questions, question_of = _queries(asked).unique()
        for counted in self._counted:
            counted.new_pairs.clear()
        top = max(question.top for question in asked)
        deadline = _deadline(asked[0])
        found = list(answering.answered(questions, top=top, with_known=kind.with_known, deadline=deadline))
        read = self._pairs_read(questions, found, answering)
        known = answering.known_of(questions)
        return [
            self._composer.answers(
                question, stop, found[place], known[place], read[place], time.monotonic() - question.started
            )
            for question, place in zip(asked, question_of.tolist(), strict=True)
        ]

    def _answering(self, stop: Stop, question: Resolved) -> Predictor:
        answering = stop.answering
        return answering if question.new is None else self.run.answering_new(answering, question.new)

    def _pairs_read(self, questions: Queries, found: Sequence[Answered], answering: Predictor) -> list[int]:
        """How many pairs of each question were in no store; of a new entity, none is."""
        if answering.new:
            return [answered.pairs for answered in found]
        keys = questions.keys(len(self.kg.entities), len(self.kg.relations)).tolist()
        return [sum(counted.new_pairs[key] for counted in self._counted) for key in keys]


def _deadline(question: Resolved) -> Deadline | None:
    """The time that a question has left; what it has waited counts."""
    if question.seconds is None:
        return None
    return Deadline(max(question.seconds - (time.monotonic() - question.started), 0.001))


def _queries(asked: Sequence[Resolved]) -> Queries:
    return Queries(
        anchors=np.array([question.anchor for question in asked], dtype=np.int32),
        relations=np.array([question.relation for question in asked], dtype=np.int32),
        predicts_tail=np.array([question.predicts_tail for question in asked], dtype=bool),
    )


def _counted_of(stops: Sequence[Stop]) -> list[Counted]:
    scorers = [tier.scorer for stop in stops for tier in stop.answering.cascade.tiers]
    return list({id(scorer): scorer for scorer in scorers if isinstance(scorer, Counted)}.values())
