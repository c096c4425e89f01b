"""The JSON that goes in and out, and its limits."""

import math
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cascader.errors import SettingsError
from cascader.graph import Side

#: The most that lists may hold; they are part of the schema, and so the same for every server.
_BATCH_QUESTIONS = 100
_BATCH_ANSWERS = 10_000  # `top` of all questions of a batch together
_CLASSIFY_TRIPLES = 1000


@dataclass(frozen=True)
class Limits:
    """The most bytes and seconds that a request may take, and the most that clients may have open or waiting."""

    body_bytes: int = 1 << 20
    seconds: float = 30.0  # until a request is answered or refused, and until its answer is taken
    header_seconds: float = 10.0  # until the first line and the headers of a request have arrived
    body_seconds: float = 10.0  # until the rest has
    waiting: int = 1000  # questions of all clients together
    connections: int = 512
    client_connections: int = 128  # of one address, which may be a proxy's

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 and math.isfinite(value)):
                raise SettingsError(f"the limit {name} is {value!r}, expected a number above 0.")


Text = Annotated[str, Field(min_length=1, max_length=1000)]


# Requests.


class RequestBody(BaseModel):
    """What a client sends; an unknown field is an error, since it is likely a typo."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _has_no_other_field(cls, given: object) -> object:
        """Report one unknown field: an error for each of a hundred thousand would take most of a second."""
        if isinstance(given, dict) and (
            unknown := next((name for name in given if name not in cls.model_fields), None)
        ):
            raise ValueError(f"there is no field {str(unknown)[:100]!r}")
        return given


class QuestionBudget(RequestBody):
    """What an answer may cost: pairs read, on average, or seconds."""

    pairs: float | None = Field(None, ge=0)
    seconds: float | None = Field(None, gt=0)


class NewEntity(RequestBody):
    """An entity that the graph does not have."""

    name: Text
    description: str = Field("", max_length=20_000)


class Question(RequestBody):
    """A question: (entity, relation, ?), or (?, relation, entity) if `side` is "head"."""

    entity: Text | None = None
    relation: Text
    side: Side = "tail"
    top: int = Field(10, ge=1, le=1000)
    with_known: bool = False
    why: bool = False
    budget: QuestionBudget | None = None
    new: NewEntity | None = None

    @model_validator(mode="after")
    def _has_one_anchor(self) -> Self:
        if (self.entity is None) == (self.new is None):
            raise ValueError(
                "expected one of entity and new: an id or a name, or the text of an entity not in the graph"
            )
        return self


class QuestionBatch(RequestBody):
    """Several questions."""

    questions: list[Question] = Field(min_length=1, max_length=_BATCH_QUESTIONS, fail_fast=True)

    @model_validator(mode="after")
    def _asks_for_few_answers(self) -> Self:
        answers = sum(question.top for question in self.questions)
        if answers > _BATCH_ANSWERS:
            raise ValueError(f"asks for {answers:,} answers in all, of at most {_BATCH_ANSWERS:,}: lower top")
        return self


class TripleBatch(RequestBody):
    """Triples by id or name: head, relation, tail."""

    triples: list[tuple[Text, Text, Text]] = Field(min_length=1, max_length=_CLASSIFY_TRIPLES, fail_fast=True)


# Responses.


class ResponseBody(BaseModel):
    """What a client gets; it is read off our own objects where their attributes have the same names."""

    model_config = ConfigDict(from_attributes=True)


class ErrorResponse(ResponseBody):
    """What was found, what was expected and what to do, with names that may have been meant."""

    error: str
    suggestions: list[str] = []


class Health(ResponseBody):
    """Which run the server serves."""

    status: str = "ok"
    run: str
    version: str


class Named(ResponseBody):
    """An entity or a relation."""

    id: str
    name: str


class EntitySummary(Named):
    """An entity with its text."""

    description: str


class RelationCount(Named):
    """A relation and the number of triples that have it."""

    count: int


class TierSummary(ResponseBody):
    """A tier of the run."""

    name: str
    kind: str
    parameters: int


class BudgetChoice(ResponseBody):
    """A budget to choose, and what it achieves on valid."""

    pairs: int
    tiers: list[str]
    valid_mrr: float | None
    predicted_seconds: float


class ExampleQuestion(ResponseBody):
    """A question to start with."""

    entity: Named
    relation: Named
    side: Side


class GraphSummary(ResponseBody):
    """Everything that a client needs to know before it asks."""

    name: str
    entity_count: int
    relation_count: int
    triple_counts: dict[str, int]
    tiers: list[TierSummary]
    relations: list[RelationCount]
    has_probabilities: bool
    reads_new: bool
    has_report: bool
    budgets: list[BudgetChoice]
    examples: list[ExampleQuestion]


class EntityMatches(ResponseBody):
    """The first entities that match, and how many there are."""

    entities: list[EntitySummary]
    total: int


class AskableRelation(Named):
    """A relation and a side to ask for; `share` is the share of similar entities that have such facts."""

    side: Side
    facts: int
    share: float


class EntityDetails(EntitySummary):
    """An entity and everything that can be asked about it, the most sensible first."""

    relations: list[AskableRelation]


class ResolvedQuestion(ResponseBody):
    """A question as the server understood it."""

    anchor: EntitySummary
    relation: Named
    side: Side
    is_new: bool


class TraceStep(ResponseBody):
    """What one tier made of an answer; `share` is what the tier counts for in the answer's score, from 0 to 1."""

    tier: str
    score: float | None
    blended: float
    rank: int
    share: float
    pruned: str
    words: str


class Fact(ResponseBody):
    """A triple of the graph."""

    head: Named
    relation: Named
    tail: Named


class ReasonGiven(ResponseBody):
    """What speaks for an answer, against it, or against the candidate below it that `rival` names.

    A `share` of 0 marks evidence that the ranking did not use. `words` says all of it in one line.
    """

    tier: str
    text: str
    facts: list[Fact]
    strength: float
    speaks_for: bool
    share: float
    rival: Named | None
    words: str


class Answer(EntitySummary):
    """An entity as an answer; `read` is its text as the language models read it.

    It has `reasons` only if the question asks why, and only if it is among the first hundred.
    """

    rank: int
    probability: float | None
    score: float
    is_known: bool
    reasons: list[ReasonGiven]
    trace: list[TraceStep]
    read: str


class QuestionText(ResponseBody):
    """The question as the language models read it, and which tiers do."""

    question: str
    of: str


class AnswerCost(ResponseBody):
    """What the answers cost; `complete` is false if time ran out before everything was read."""

    pairs_read: int
    pairs_from_store: int
    seconds: float
    tiers: list[str]
    complete: bool
    valid_mrr: float | None


class Answers(ResponseBody):
    """The answers to a question, and up to a hundred that the graph already has."""

    question: ResolvedQuestion
    answers: list[Answer]
    known: list[EntitySummary]
    known_count: int
    read: QuestionText
    cost: AnswerCost


class BatchAnswers(ResponseBody):
    """The answers to each question, or what was wrong with it."""

    answers: list[Answers | ErrorResponse]


class TripleVerdict(ResponseBody):
    """Whether a triple is judged true."""

    head: Named
    relation: Named
    tail: Named
    probability: float
    is_true: bool
    is_known: bool


class Verdicts(ResponseBody):
    """A verdict for each triple, and the lowest probability that counts as true."""

    verdicts: list[TripleVerdict]
    threshold: float
