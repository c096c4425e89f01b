"""What is sent back: predictions as answers, with the texts that were read, encoded as JSON."""

import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Self

from cascader.cascade import Trace
from cascader.graph import Entity, IntArray
from cascader.models.text.text_model import phrase_of, text_of
from cascader.runs import Prediction, Predictions, Run, TierReason
from cascader.serve.batcher import Check
from cascader.serve.budget_levels import BudgetLevel
from cascader.serve.schemas import (
    Answer,
    AnswerCost,
    Answers,
    EntitySummary,
    Named,
    QuestionText,
    ReasonGiven,
    ResolvedQuestion,
    TraceStep,
)

_MAX_KNOWN = 100
_CACHED_TEXTS = 20_000
#: Answers to a question that are explained, if it asks why; each takes some milliseconds.
_MOST_EXPLAINED = 100


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


@dataclass(frozen=True)
class EncodedAnswers:
    """The answers to a question as JSON: encoding takes a while, and happens where nobody else waits for it."""

    content: bytes
    pairs_read: int

    @classmethod
    def of(cls, answers: Answers) -> Self:
        """Encode some answers."""
        return cls(answers.model_dump_json().encode(), answers.cost.pairs_read)


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
        check: Check,
    ) -> Answers:
        """The response to a question; `known` are the answers that the graph already has."""
        answers = []
        for place, prediction in enumerate(found[: query.top]):
            check()
            answers.append(self._answer(prediction, query.why and place < _MOST_EXPLAINED))
        return Answers(
            question=self._question(query),
            answers=answers,
            known=[EntitySummary.model_validate(self._kg.entities[place]) for place in known[:_MAX_KNOWN]],
            known_count=len(known),
            read=self._question_text(query, level),
            cost=AnswerCost(
                pairs_read=pairs_read,
                pairs_from_store=found.pairs - pairs_read,
                seconds=time.monotonic() - query.started,
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
            reasons=[reason_given(reason) for reason in prediction.reasons] if is_explained else [],
            trace=[_trace_step(trace) for trace in prediction.trace],
            read=self._read(prediction.entity),
        )

    def _as_read(self, entity: Entity) -> str:
        """The text as the tier that reads furthest reads it; all of it if no tier reads."""
        text = text_of(entity)
        return max((model.as_read(text) for model in self._language.values()), key=len, default=text)


def reason_given(reason: TierReason) -> ReasonGiven:
    """A reason as it is sent."""
    return ReasonGiven(**reason.as_dict(), words=reason.in_words())


def _trace_step(trace: Trace) -> TraceStep:
    return TraceStep(**asdict(trace), words=trace.in_words())
