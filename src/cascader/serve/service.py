"""Questions in, answers out: resolves names and budgets, and answers in one thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cascader.cascade import Deadline
from cascader.display import no_progress
from cascader.errors import CascaderError, DataError, UnknownNameError
from cascader.graph import Entity, Queries
from cascader.graph.names import CLOSEST
from cascader.runs import Predictions, Predictor, Run, Verdict
from cascader.serve.batcher import Batcher, Batching, Check, LateError
from cascader.serve.budget_levels import BudgetLevel, CountingScorer, budget_levels, within_pairs, within_seconds
from cascader.serve.middleware import reply_to
from cascader.serve.names import Names
from cascader.serve.responses import EncodedAnswers, ResolvedQuery, ResponseBuilder
from cascader.serve.schemas import ErrorResponse, Limits, Question, TripleVerdict, Verdicts

#: Triples that are judged in one go, before other clients get their turn.
_TRIPLES_PER_BLOCK = 20
#: Few, so that the event loop and the models get their turn; whoever finds them busy waits.
_LOOKUP_THREADS = 3
_SECONDS_TO_CLOSE = 1.0
_ASK_ALONE = "Search for it at /api/entities, or ask /api/answer, to get the closest names."
#: Marks what is no question, but has to be computed in the same thread.
_ACTION = object()
T = TypeVar("T")


@dataclass(frozen=True)
class BatchKey:
    """Questions with equal keys are answered as one block; `alone` keeps a question out of every other's block."""

    level: int
    with_known: bool
    why: bool = False
    alone: object = None


class QueryService:
    """Answers questions with a run that is loaded once."""

    def __init__(self, run: Run, limits: Limits, batching: Batching) -> None:
        self.run, self.kg, self._limits, self._batching = run, run.kg, limits, batching
        self.names = Names(run.kg)
        self.levels = budget_levels(run)
        best = self.levels[-1].predictor
        self._judge = run.with_threshold(best) if best.calibration is not None else None
        self._responses = ResponseBuilder(run)
        self._counting = _counting_scorers(self.levels)
        self._lookups = ThreadPoolExecutor(_LOOKUP_THREADS, "lookups")
        self._batcher = Batcher(self._work, self._most, batching, limits.waiting)

    async def compute(self, action: Callable[[], T]) -> T:
        """Let something be computed by the thread that answers, when its turn comes."""
        found: T = await self._answered(BatchKey(0, with_known=False, alone=_ACTION), action, time.monotonic())
        return found

    @property
    def waiting(self) -> int:
        """The number of questions that wait."""
        return len(self._batcher)

    def stop(self) -> None:
        """Finish the current block, and refuse everything else."""
        self._batcher.stop()

    def join(self) -> None:
        """Wait until nothing is computed any more."""
        self.stop()
        self._batcher.join()

    def close(self) -> None:
        """Stop answering, and write new scores into the run."""
        self._batcher.close(_SECONDS_TO_CLOSE)
        self._lookups.shutdown(wait=False, cancel_futures=True)
        for scorer in self._counting:
            scorer.write()

    # Asking, in the event loop. Whoever leaves cancels what runs here, and with it what was waiting or computed.

    async def answer(self, question: Question) -> EncodedAnswers:
        """Answer a question."""
        started = time.monotonic()
        try:
            key, query = self._resolve(question, started, closest=0)
        except UnknownNameError:  # close names take a while to find, so a thread does that
            key, query = await self.lookup(self._resolve, question, started, CLOSEST)
        return await self._answered(key, query, started)

    async def answer_batch(self, questions: Sequence[Question]) -> list[EncodedAnswers | ErrorResponse]:
        """Answer several questions; an error in one does not affect the others."""
        started = time.monotonic()
        resolved = await self.lookup(self._resolve_each, questions, started)
        return list(await asyncio.gather(*(self._answered_or_error(each, started) for each in resolved)))

    async def _answered_or_error(
        self, resolved: tuple[BatchKey, ResolvedQuery] | UnknownNameError, started: float
    ) -> EncodedAnswers | ErrorResponse:
        try:
            if isinstance(resolved, UnknownNameError):
                raise resolved
            return await self._answered(*resolved, started)
        except CascaderError as error:
            return reply_to(error).body

    async def classify(self, triples: Sequence[tuple[str, str, str]]) -> Verdicts:
        """Judge whether triples are true."""
        started = time.monotonic()
        if self._judge is None or self._judge.calibration is None:
            raise DataError(
                f"{self.kg.name} has no valid triples, so there are no probabilities to judge by. Hold some out, and "
                "fit again."
            )
        rows = await self.lookup(self._indices, triples)
        key = BatchKey(len(self.levels) - 1, with_known=False, alone="verdicts")
        found: list[Verdict] = []
        for start in range(0, len(rows), _TRIPLES_PER_BLOCK):  # in between, other clients get their answers
            found += await self._answered(key, rows[start : start + _TRIPLES_PER_BLOCK], started)
        model = self._judge.calibration.verdicts
        assert model is not None  # noqa: S101 - run.with_threshold has learned one
        verdicts = [TripleVerdict.model_validate(verdict) for verdict in found]
        return Verdicts(verdicts=verdicts, threshold=model.threshold)

    async def lookup(self, function: Callable[..., T], *given: object) -> T:
        """Look something up in one of a few threads."""
        async with self._in_time(time.monotonic()):
            return await asyncio.get_running_loop().run_in_executor(self._lookups, function, *given)

    async def _answered(self, key: BatchKey, item: object, started: float) -> Any:  # noqa: ANN401 - what work returns
        job = self._batcher.submit(key, item)
        try:
            async with self._in_time(started):
                return await asyncio.wrap_future(job.future)
        finally:
            job.abandon()

    @asynccontextmanager
    async def _in_time(self, started: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(started + self._limits.seconds):
                yield
        except TimeoutError:
            raise LateError(
                f"no answer within {self._limits.seconds:g} seconds, which is the limit. Ask for less at once, use a "
                "smaller budget, or try again later."
            ) from None

    # Resolving names.

    def _resolve(self, question: Question, started: float, closest: int) -> tuple[BatchKey, ResolvedQuery]:
        relation = self.names.relation(question.relation, closest)
        new = None
        if question.new is not None:
            new = Entity(f"new:{question.new.name}", question.new.name, question.new.description)
        anchor = 0 if question.entity is None else self.names.entity(question.entity, closest)
        pairs, seconds = (None, None) if question.budget is None else (question.budget.pairs, question.budget.seconds)
        if seconds is not None and seconds > self._limits.seconds:
            raise DataError(f"budget.seconds is {seconds:g}, expected at most {self._limits.seconds:g}. Ask for less.")
        alone = object() if new is not None or seconds is not None else None
        asks_tail = question.side == "tail"
        query = ResolvedQuery(anchor, relation, asks_tail, question.top, started, seconds, new, question.why)
        return BatchKey(self._level(pairs, seconds), question.with_known, question.why, alone), query

    def _resolve_each(
        self, questions: Sequence[Question], started: float
    ) -> list[tuple[BatchKey, ResolvedQuery] | UnknownNameError]:
        found: list[tuple[BatchKey, ResolvedQuery] | UnknownNameError] = []
        for question in questions:
            try:
                found.append(self._resolve(question, started, closest=0))
            except UnknownNameError as error:
                found.append(UnknownNameError(f"{error} {_ASK_ALONE}", error.candidates))
        return found

    def _indices(self, triples: Sequence[tuple[str, str, str]]) -> list[tuple[int, int, int]]:
        rows = []
        for number, triple in enumerate(triples, start=1):
            try:
                rows.append(self.names.triple(*triple, closest=0))
            except UnknownNameError as error:
                raise UnknownNameError(f"triple {number}: {error} {_ASK_ALONE}", error.candidates) from None
        return rows

    def _level(self, pairs: float | None, seconds: float | None) -> int:
        """The place of the best level within both budgets."""
        fitting = [len(self.levels) - 1]
        if pairs is not None:
            fitting.append(within_pairs(self.levels, pairs))
        if seconds is not None:
            fitting.append(within_seconds(self.levels, seconds))
        return min(fitting)

    # Answering, in the batcher's thread.

    def _most(self, key: BatchKey) -> int:
        """As many questions as fit into a block, so that nobody waits long for other clients' questions."""
        if key.why or key.alone is _ACTION:
            return 1
        at_once = int(self._batching.block_seconds / max(self.levels[key.level].predicted_seconds, 1e-9))
        return max(1, min(self._batching.most, at_once))

    def _work(self, key: BatchKey, items: list[Any], check: Check) -> list[Any]:
        for scorer in self._counting:
            scorer.check = check
            scorer.new_pairs.clear()
        with no_progress():
            if key.alone is _ACTION:
                return [action() for action in items]
            if key.alone == "verdicts":
                return [self._verdicts(rows) for rows in items]
            return self._answers(key, items, check)

    def _verdicts(self, rows: list[tuple[int, int, int]]) -> list[Verdict]:
        assert self._judge is not None  # noqa: S101 - `classify` has checked
        return self.run.review.informed(self._judge).judge(np.array(rows, dtype=np.int32))

    def _answers(self, key: BatchKey, asked: list[ResolvedQuery], check: Check) -> list[EncodedAnswers]:
        level = self.levels[key.level]
        predictor = self._predictor(level, asked[0])
        questions, question_of = _queries(asked).unique()
        top, deadline = max(query.top for query in asked), _deadline(asked[0])
        found = list(predictor.answer(questions, top=top, with_known=key.with_known, deadline=deadline))
        read = self._pairs_read(questions, found, predictor)
        known = predictor.known_of(questions)
        return [
            EncodedAnswers.of(self._responses.answers(query, level, found[i], known[i], read[i], check))
            for query, i in zip(asked, question_of.tolist(), strict=True)
        ]

    def _predictor(self, level: BudgetLevel, query: ResolvedQuery) -> Predictor:
        if query.new is not None:
            return self.run.for_new_entity(level.predictor, query.new)
        return self.run.review.informed(level.predictor)  # with what was decided up to now

    def _pairs_read(self, questions: Queries, found: Sequence[Predictions], predictor: Predictor) -> list[int]:
        """How many pairs of each question were in no store; pairs of a new entity never are."""
        if predictor.new:
            return [answers.pairs for answers in found]
        keys = questions.keys(len(self.kg.entities), len(self.kg.relations)).tolist()
        return [sum(scorer.new_pairs[key] for scorer in self._counting) for key in keys]


def _deadline(query: ResolvedQuery) -> Deadline | None:
    """The time that a question has left; what it has waited counts."""
    if query.seconds is None:
        return None
    return Deadline(max(query.seconds - (time.monotonic() - query.started), 0.001))


def _queries(asked: Sequence[ResolvedQuery]) -> Queries:
    return Queries(
        anchors=np.array([query.anchor for query in asked], dtype=np.int32),
        relations=np.array([query.relation for query in asked], dtype=np.int32),
        predicts_tail=np.array([query.predicts_tail for query in asked], dtype=bool),
    )


def _counting_scorers(levels: Sequence[BudgetLevel]) -> list[CountingScorer]:
    scorers = [tier.scorer for level in levels for tier in level.predictor.cascade.tiers]
    return list({id(scorer): scorer for scorer in scorers if isinstance(scorer, CountingScorer)}.values())
