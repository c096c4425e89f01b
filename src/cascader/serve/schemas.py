"""What goes in and out as JSON."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cascader.graph import Entity, Relation, Side
from cascader.serve.limits import Limits

_LIMITS = Limits()
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class _Asked(BaseModel):
    """What a client sends; a field that nobody knows is a mistake that it should hear of."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class AskedBudget(_Asked):
    """What an answer may cost: pairs that are read together, on average, or seconds."""

    pairs: float | None = Field(None, ge=0)
    seconds: float | None = Field(None, gt=0, le=_LIMITS.seconds)


class AskedEntity(_Asked):
    """An entity that the graph does not have."""

    name: Text
    description: str = Field("", max_length=20_000)


class Ask(_Asked):
    """A question: (entity, relation, ?), or (?, relation, entity) with the side "head"."""

    entity: Text | None = None
    relation: Text
    side: Side = "tail"
    top: int = Field(10, ge=1, le=1000)
    with_known: bool = False
    budget: AskedBudget | None = None
    new: AskedEntity | None = None

    @model_validator(mode="after")
    def _is_about_one(self) -> Self:
        if (self.entity is None) == (self.new is None):
            raise ValueError("expected one of entity and new: an id or name, or a text that the graph does not have")
        return self


class AskBatch(_Asked):
    """Several questions."""

    questions: list[Ask] = Field(min_length=1, max_length=_LIMITS.batch_questions)


class AskTriples(_Asked):
    """Triples by id or name: head, relation, tail."""

    triples: list[tuple[Text, Text, Text]] = Field(min_length=1, max_length=_LIMITS.classify_triples)


class Problem(BaseModel):
    """What was found, what was expected, what to do; with names that may have been meant."""

    error: str
    suggestions: list[str] = []


class Health(BaseModel):
    """That the server is there."""

    status: str = "ok"
    run: str
    version: str


class Named(BaseModel):
    """An entity or a relation."""

    id: str
    name: str

    @classmethod
    def of(cls, thing: Entity | Relation) -> "Named":
        """As the graph has it."""
        return cls(id=thing.id, name=thing.name)


class Described(Named):
    """An entity with its text."""

    description: str

    @classmethod
    def of(cls, thing: Entity) -> "Described":  # type: ignore[override]
        """As the graph has it."""
        return cls(id=thing.id, name=thing.name, description=thing.description)


class CountedRelation(Named):
    """A relation and how many triples have it."""

    count: int


class TierBody(BaseModel):
    """A tier of the run."""

    name: str
    kind: str
    parameters: int


class StopBody(BaseModel):
    """A budget that can be chosen, and what valid says of it."""

    pairs: int
    tiers: list[str]
    valid_mrr: float | None
    predicted_seconds: float


class Example(BaseModel):
    """A question to start with."""

    entity: Named
    relation: Named
    side: Side


class Graph(BaseModel):
    """All that a client needs to know before it asks."""

    name: str
    entity_count: int
    relation_count: int
    triple_counts: dict[str, int]
    tiers: list[TierBody]
    relations: list[CountedRelation]
    has_probabilities: bool
    reads_new: bool
    has_report: bool
    budgets: list[StopBody]
    examples: list[Example]


class FoundEntities(BaseModel):
    """The first entities that match, and how many do."""

    entities: list[Described]
    total: int


class AskableRelation(Named):
    """A relation and the side that can be asked for; `share` is that of similar entities that have such facts."""

    side: Side
    facts: int
    share: float


class EntityBody(Described):
    """An entity and all that can be asked about it, what makes most sense first."""

    relations: list[AskableRelation]


class Question(BaseModel):
    """A question as it was understood."""

    anchor: Described
    relation: Named
    side: Side
    is_new: bool


class TraceBody(BaseModel):
    """What one tier made of an answer."""

    tier: str
    score: float | None
    blended: float
    rank: int
    alpha: float
    pruned: str
    words: str


class AnswerBody(Described):
    """An entity as an answer; `read` is its text as the language models read it."""

    rank: int
    probability: float | None
    score: float
    is_known: bool
    trace: list[TraceBody]
    read: str


class ReadBody(BaseModel):
    """The question as the language models read it, and which tiers do."""

    question: str
    of: str


class CostBody(BaseModel):
    """What an answer has cost; `complete` is false if the time was up before all was read."""

    pairs_read: int
    pairs_from_store: int
    seconds: float
    tiers: list[str]
    complete: bool
    valid_mrr: float | None


class Answers(BaseModel):
    """The answers to a question; of what is known already, the first hundred."""

    question: Question
    answers: list[AnswerBody]
    known: list[Described]
    known_count: int
    read: ReadBody
    cost: CostBody


class BatchAnswers(BaseModel):
    """An answer for each question, or what was wrong with it."""

    answers: list[Answers | Problem]


class VerdictBody(BaseModel):
    """Whether a triple is held for true."""

    head: Named
    relation: Named
    tail: Named
    probability: float
    is_true: bool
    is_known: bool


class Verdicts(BaseModel):
    """A verdict for each triple, and the probability from which on they are true."""

    verdicts: list[VerdictBody]
    threshold: float
