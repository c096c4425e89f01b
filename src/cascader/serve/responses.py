"""Answers as a client gets them, with the texts that the language models read."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cascader.cascade import Trace
from cascader.graph import Entity, IntArray, Side
from cascader.models.text.texts import phrase_of, text_of
from cascader.runs import Answered, Prediction, Run, Verdict
from cascader.serve.budget_levels import Stop
from cascader.serve.schemas import (
    AnswerBody,
    Answers,
    CostBody,
    Described,
    Named,
    Question,
    ReadBody,
    TraceBody,
    VerdictBody,
)

if TYPE_CHECKING:
    from cascader.serve.service import Resolved

_MOST_KNOWN = 100
_TEXTS_KEPT = 20_000


class Composer:
    """Puts answers together; used by one thread only, as tokenizers want it."""

    def __init__(self, run: Run) -> None:
        self._kg = run.kg
        self._language = {name: model for name, model in run.tiers.items() if hasattr(model, "as_read")}
        self._read = lru_cache(_TEXTS_KEPT)(self._as_read)

    def answers(
        self, asked: "Resolved", stop: Stop, found: Answered, known: IntArray, pairs_read: int, seconds: float
    ) -> Answers:
        """What a client gets; `known` are the entities that the graph has there already."""
        anchor = asked.new or self._kg.entities[asked.anchor]
        relation, side = self._kg.relations[asked.relation], _side(asked.predicts_tail)
        return Answers(
            question=Question(
                anchor=Described.of(anchor), relation=Named.of(relation), side=side, is_new=asked.new is not None
            ),
            answers=[self._answer(prediction) for prediction in found.predictions[: asked.top]],
            known=[Described.of(self._kg.entities[place]) for place in known[:_MOST_KNOWN]],
            known_count=len(known),
            read=ReadBody(
                question=f"{phrase_of(relation.name, asked.predicts_tail)} | {self._read(anchor)}",
                of=", ".join(name for name in stop.tiers if name in self._language),
            ),
            cost=CostBody(
                pairs_read=pairs_read,
                pairs_from_store=found.pairs - pairs_read,
                seconds=seconds,
                tiers=stop.tiers,
                complete=found.complete,
                valid_mrr=None if asked.new else stop.valid_mrr,  # valid asks of no new entity
            ),
        )

    def _answer(self, prediction: Prediction) -> AnswerBody:
        entity = prediction.entity
        return AnswerBody(
            id=entity.id,
            name=entity.name,
            description=entity.description,
            rank=prediction.rank,
            probability=prediction.probability,
            score=prediction.score,
            is_known=prediction.is_known,
            trace=[_trace(trace) for trace in prediction.trace],
            read=self._read(entity),
        )

    def _as_read(self, entity: Entity) -> str:
        """As the tier reads it that reads furthest; where none reads, all of it."""
        text = text_of(entity)
        return max((model.as_read(text) for model in self._language.values()), key=len, default=text)


def _trace(trace: Trace) -> TraceBody:
    fields: dict[str, Any] = {name: getattr(trace, name) for name in TraceBody.model_fields if name != "words"}
    return TraceBody(**fields, words=trace.in_words())


def verdict_body(verdict: Verdict) -> VerdictBody:
    """A verdict as a client gets it."""
    return VerdictBody(
        head=Named.of(verdict.head),
        relation=Named.of(verdict.relation),
        tail=Named.of(verdict.tail),
        probability=verdict.probability,
        is_true=verdict.is_true,
        is_known=verdict.is_known,
    )


def _side(predicts_tail: bool) -> Side:
    return "tail" if predicts_tail else "head"
