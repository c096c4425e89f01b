"""Questions in, answers out: resolves names and budgets, answers in one thread, and adds the texts that were read."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cascader.cascade import Deadline, Trace
from cascader.display import no_progress
from cascader.errors import CascaderError, DataError, UnknownNameError
from cascader.graph import Entity, IntArray, Queries
from cascader.models.text.text_model import phrase_of, text_of
from cascader.runs import Prediction, Predictions, Predictor, Run, TierReason, Verdict
from cascader.serve.batcher import Batcher, Batching, LateError
from cascader.serve.budget_levels import BudgetLevel, CountingScorer, budget_levels, within_pairs, within_seconds
from cascader.serve.middleware import reply_to
from cascader.serve.names import Names
from cascader.serve.schemas import (
    Answer,
    AnswerCost,
    Answers,
    EntitySummary,
    ErrorResponse,
    Limits,
    Named,
    Question,
    QuestionText,
    ReasonGiven,
    ResolvedQuestion,
    TraceStep,
    TripleVerdict,
    Verdicts,
)

#: Triples that are judged in one go, before other clients get their turn.
_TRIPLES_PER_BLOCK = 20
_MAX_KNOWN = 100
_CACHED_TEXTS = 20_000
#: Answers to a question that are explained, if it asks why; each takes some milliseconds.
_MOST_EXPLAINED = 100


@dataclass(frozen=True)
class BatchKey:
    """Questions with equal keys are answered as one block; `alone` keeps a question out of every other's block."""

    level: int
    with_known: bool
    why: bool = False
    alone: object = None


@dataclass(frozen=True, eq=False)
class ResolvedQuery:
    """A question by indices."""

    anchor: int
    relation: int
    predicts_tail: bool
    top: int
    started: float
    seconds: float | None  # that it may take, counted from `started`
    new: Entity | None
    why: bool  # its answers are to be explained


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
        self._batcher = Batcher(self._work, self._most, batching, limits.waiting)

    def close(self) -> None:
        """Stop answering, and write new scores into the run."""
        self._batcher.close()
        for scorer in self._counting:
            scorer.write()

    # Asking, in the event loop.

    async def answer(self, question: Question) -> Answers:
        """Answer a question."""
        key, query = await asyncio.to_thread(self._resolve, question)
        answers: Answers = await self._in_time(self._batcher.submit(key, query), query.started)
        return answers

    async def answer_batch(self, questions: Sequence[Question]) -> list[Answers | ErrorResponse]:
        """Answer several questions; an error in one does not affect the others."""
        return list(await asyncio.gather(*(self._answer_or_error(question) for question in questions)))

    async def _answer_or_error(self, question: Question) -> Answers | ErrorResponse:
        try:
            return await self.answer(question)
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
        rows = await asyncio.to_thread(self._indices, triples)
        key = BatchKey(len(self.levels) - 1, with_known=False, alone="verdicts")
        found: list[Verdict] = []
        for start in range(0, len(rows), _TRIPLES_PER_BLOCK):  # in between, other clients get their answers
            part = rows[start : start + _TRIPLES_PER_BLOCK]
            found += await self._in_time(self._batcher.submit(key, part), started)
        threshold = self._judge.calibration.threshold
        assert threshold is not None  # noqa: S101 - run.with_threshold has chosen one
        verdicts = [TripleVerdict.model_validate(verdict) for verdict in found]
        return Verdicts(verdicts=verdicts, threshold=threshold.probability)

    async def _in_time(self, future: Future[Any], started: float) -> Any:  # noqa: ANN401 - what the future holds
        left = self._limits.seconds - (time.monotonic() - started)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), max(left, 0.001))
        except TimeoutError:
            raise LateError(
                f"no answer within {self._limits.seconds:g} seconds, which is the limit. Ask for less at once, use a "
                "smaller budget, or try again later."
            ) from None

    def _resolve(self, question: Question) -> tuple[BatchKey, ResolvedQuery]:
        relation = self.names.relation(question.relation)
        new = None
        if question.new is not None:
            new = Entity(f"new:{question.new.name}", question.new.name, question.new.description)
        anchor = 0 if question.entity is None else self.names.entity(question.entity)
        pairs, seconds = (None, None) if question.budget is None else (question.budget.pairs, question.budget.seconds)
        alone = object() if new is not None or seconds is not None else None
        asks_tail, started = question.side == "tail", time.monotonic()
        query = ResolvedQuery(anchor, relation, asks_tail, question.top, started, seconds, new, question.why)
        return BatchKey(self._level(pairs, seconds), question.with_known, question.why, alone), query

    def _level(self, pairs: float | None, seconds: float | None) -> int:
        """The place of the best level within both budgets."""
        fitting = [len(self.levels) - 1]
        if pairs is not None:
            fitting.append(within_pairs(self.levels, pairs))
        if seconds is not None:
            fitting.append(within_seconds(self.levels, seconds))
        return min(fitting)

    def _indices(self, triples: Sequence[tuple[str, str, str]]) -> list[tuple[int, int, int]]:
        rows = []
        for number, triple in enumerate(triples, start=1):
            try:
                rows.append(self.names.triple(*triple))
            except UnknownNameError as error:
                raise UnknownNameError(f"triple {number}: {error}", error.candidates) from None
        return rows

    # Answering, in the batcher's thread.

    def _most(self, key: BatchKey) -> int:
        """As many questions as fit into a block, so that nobody waits long for other clients' questions."""
        if key.why:
            return 1
        at_once = int(self._batching.block_seconds / max(self.levels[key.level].predicted_seconds, 1e-9))
        return max(1, min(self._batching.most, at_once))

    def _work(self, key: BatchKey, items: list[Any]) -> list[Any]:
        with no_progress():
            if key.alone == "verdicts":
                return [self._verdicts(rows) for rows in items]
            return self._answers(key, items)

    def _verdicts(self, rows: list[tuple[int, int, int]]) -> list[Verdict]:
        assert self._judge is not None  # noqa: S101 - `classify` has checked
        return self._judge.judge(np.array(rows, dtype=np.int32))

    def _answers(self, key: BatchKey, asked: list[ResolvedQuery]) -> list[Answers]:
        level = self.levels[key.level]
        predictor = self._predictor(level, asked[0])
        questions, question_of = _queries(asked).unique()
        for scorer in self._counting:
            scorer.new_pairs.clear()
        top, deadline = max(query.top for query in asked), _deadline(asked[0])
        found = list(predictor.answer(questions, top=top, with_known=key.with_known, deadline=deadline))
        read = self._pairs_read(questions, found, predictor)
        known = predictor.known_of(questions)
        return [
            self._responses.answers(
                query, level, found[place], known[place], read[place], time.monotonic() - query.started
            )
            for query, place in zip(asked, question_of.tolist(), strict=True)
        ]

    def _predictor(self, level: BudgetLevel, query: ResolvedQuery) -> Predictor:
        predictor = level.predictor
        return predictor if query.new is None else self.run.for_new_entity(predictor, query.new)

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


class ResponseBuilder:
    """Builds responses; used by one thread only, because tokenizers are not thread-safe."""

    def __init__(self, run: Run) -> None:
        self._kg = run.kg
        self._language = {name: model for name, model in run.tiers.items() if hasattr(model, "as_read")}
        self._read = lru_cache(_CACHED_TEXTS)(self._as_read)

    def answers(
        self,
        query: ResolvedQuery,
        level: BudgetLevel,
        found: Predictions,
        known: IntArray,
        pairs_read: int,
        seconds: float,
    ) -> Answers:
        """The response to a question; `known` are the answers that the graph already has."""
        return Answers(
            question=self._question(query),
            answers=[
                self._answer(prediction, query.why and place < _MOST_EXPLAINED)
                for place, prediction in enumerate(found[: query.top])
            ],
            known=[EntitySummary.model_validate(self._kg.entities[place]) for place in known[:_MAX_KNOWN]],
            known_count=len(known),
            read=self._question_text(query, level),
            cost=AnswerCost(
                pairs_read=pairs_read,
                pairs_from_store=found.pairs - pairs_read,
                seconds=seconds,
                tiers=level.tiers,
                complete=found.complete,
                valid_mrr=None if query.new else level.valid_mrr,  # valid has no questions about new entities
            ),
        )

    def _question(self, query: ResolvedQuery) -> ResolvedQuestion:
        return ResolvedQuestion(
            anchor=EntitySummary.model_validate(self._anchor(query)),
            relation=Named.model_validate(self._kg.relations[query.relation]),
            side="tail" if query.predicts_tail else "head",
            is_new=query.new is not None,
        )

    def _anchor(self, query: ResolvedQuery) -> Entity:
        return query.new or self._kg.entities[query.anchor]

    def _question_text(self, query: ResolvedQuery, level: BudgetLevel) -> QuestionText:
        phrase = phrase_of(self._kg.relations[query.relation].name, query.predicts_tail)
        return QuestionText(
            question=f"{phrase} | {self._read(self._anchor(query))}",
            of=", ".join(name for name in level.tiers if name in self._language),
        )

    def _answer(self, prediction: Prediction, is_explained: bool) -> Answer:
        return Answer(
            **prediction.entity._asdict(),
            rank=prediction.rank,
            probability=prediction.probability,
            score=prediction.score,
            is_known=prediction.is_known,
            reasons=[_reason_given(reason) for reason in prediction.reasons] if is_explained else [],
            trace=[_trace_step(trace) for trace in prediction.trace],
            read=self._read(prediction.entity),
        )

    def _as_read(self, entity: Entity) -> str:
        """The text as the tier that reads furthest reads it; all of it if no tier reads."""
        text = text_of(entity)
        return max((model.as_read(text) for model in self._language.values()), key=len, default=text)


def _reason_given(reason: TierReason) -> ReasonGiven:
    return ReasonGiven(**reason.as_dict(), words=reason.in_words())


def _trace_step(trace: Trace) -> TraceStep:
    return TraceStep(**asdict(trace), words=trace.in_words())
