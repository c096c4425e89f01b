"""Answers as a client gets them, with the texts that the language models read."""

from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

from cascader.cascade import Trace
from cascader.graph import Entity, IntArray
from cascader.models.text.text_model import phrase_of, text_of
from cascader.runs import Prediction, Predictions, Run
from cascader.serve.budget_levels import BudgetLevel
from cascader.serve.schemas import (
    Answer,
    AnswerCost,
    Answers,
    EntitySummary,
    Named,
    QuestionText,
    ResolvedQuestion,
    TraceStep,
)

if TYPE_CHECKING:
    from cascader.serve.service import ResolvedQuery

_MAX_KNOWN = 100
_CACHED_TEXTS = 20_000


class ResponseBuilder:
    """Builds responses; used by one thread only, because tokenizers are not thread-safe."""

    def __init__(self, run: Run) -> None:
        self._kg = run.kg
        self._language = {name: model for name, model in run.tiers.items() if hasattr(model, "as_read")}
        self._read = lru_cache(_CACHED_TEXTS)(self._as_read)

    def answers(
        self,
        query: "ResolvedQuery",
        level: BudgetLevel,
        found: Predictions,
        known: IntArray,
        pairs_read: int,
        seconds: float,
    ) -> Answers:
        """The response to a question; `known` are the answers that the graph already has."""
        return Answers(
            question=self._question(query),
            answers=[self._answer(prediction) for prediction in found[: query.top]],
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

    def _question(self, query: "ResolvedQuery") -> ResolvedQuestion:
        return ResolvedQuestion(
            anchor=EntitySummary.model_validate(self._anchor(query)),
            relation=Named.model_validate(self._kg.relations[query.relation]),
            side="tail" if query.predicts_tail else "head",
            is_new=query.new is not None,
        )

    def _anchor(self, query: "ResolvedQuery") -> Entity:
        return query.new or self._kg.entities[query.anchor]

    def _question_text(self, query: "ResolvedQuery", level: BudgetLevel) -> QuestionText:
        phrase = phrase_of(self._kg.relations[query.relation].name, query.predicts_tail)
        return QuestionText(
            question=f"{phrase} | {self._read(self._anchor(query))}",
            of=", ".join(name for name in level.tiers if name in self._language),
        )

    def _answer(self, prediction: Prediction) -> Answer:
        return Answer(
            **prediction.entity._asdict(),
            rank=prediction.rank,
            probability=prediction.probability,
            score=prediction.score,
            is_known=prediction.is_known,
            trace=[_trace_step(trace) for trace in prediction.trace],
            read=self._read(prediction.entity),
        )

    def _as_read(self, entity: Entity) -> str:
        """The text as the tier that reads furthest reads it; all of it if no tier reads."""
        text = text_of(entity)
        return max((model.as_read(text) for model in self._language.values()), key=len, default=text)


def _trace_step(trace: Trace) -> TraceStep:
    return TraceStep(**asdict(trace), words=trace.in_words())
