"""Reviewing over HTTP: the work list, made in the background, the reasons for a link, and what is decided of it."""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from cascader.datasets.rdf import ntriples
from cascader.datasets.tables import write_rows
from cascader.graph import Side
from cascader.runs import REVIEW_COLUMNS, Link, Outcome, Review, WorkList, checked_reviewer, every_question, link_of
from cascader.serve.batcher import BusyError, LateError
from cascader.serve.budget_levels import BudgetLevel
from cascader.serve.middleware import error_reply
from cascader.serve.responses import reason_given
from cascader.serve.schemas import (
    EntitySummary,
    ErrorResponse,
    Named,
    ReasonGiven,
    RelationCount,
    RequestBody,
    ResponseBody,
    Text,
)
from cascader.serve.service import QueryService

#: How long the list may take to make: within that, the best cascade asks; else a cheaper one.
_SECONDS_TO_MAKE = 600.0
#: The most probable links are kept, and this many sent at once.
_MOST_KEPT, _MOST_SENT = 10_000, 100
_SECONDS_UNTIL_AGAIN = 1.0
_ANYONE = "anonymous"
Id = Annotated[str, Query(min_length=1, max_length=1000)]
Reviewer = Annotated[str, Field(min_length=1, max_length=100)]


# Requests.


class LinkToDecide(RequestBody):
    """A link, by ids or names, and what is decided of it."""

    head: Text
    relation: Text
    tail: Text
    decision: Literal["accepted", "rejected", "skipped"]
    reviewer: Reviewer = _ANYONE


class UndoRequest(RequestBody):
    """Whose last decision is to be undone."""

    reviewer: Reviewer = _ANYONE


# Responses.


class ProposedLink(ResponseBody):
    """A link that the run proposes; its probability is that of both questions that it answers."""

    head: EntitySummary
    relation: Named
    tail: EntitySummary
    probability: float | None


class ExplainedLink(ProposedLink):
    """A link with the reasons for it, what was decided of it, and by whom; as the answer that predicts its `side`."""

    side: Side
    reasons: list[ReasonGiven]
    decision: str | None
    reviewer: str | None


class DecisionCounts(ResponseBody):
    """How many links are accepted and rejected, by anyone, and skipped by one reviewer."""

    accepted: int
    rejected: int
    skipped: int


class WorkListPart(ResponseBody):
    """The first links that wait for a reviewer, the most probable first; none until the list `is_ready`.

    `questions` of `question_count` are asked so far. `decided_since` counts the links that were decided since the list
    was made: POST to /api/review/renew to make it again.
    """

    is_ready: bool
    questions: int
    question_count: int
    links: list[ProposedLink]
    waiting: int
    relations: list[RelationCount]
    counts: DecisionCounts
    decided_since: int
    is_read_only: bool
    notes: list[str]


class DecisionMade(ResponseBody):
    """What was decided, or undone: then `decision` is what it was before; None if there was nothing to undo."""

    head: Named | None
    relation: Named | None
    tail: Named | None
    decision: str | None
    counts: DecisionCounts


#: The media types of exported decisions.
_EXPORTED = {"tsv": "text/tab-separated-values", "nt": "application/n-triples"}


class Desk:
    """The work list of a served run, and the links on it by ids."""

    def __init__(self, service: QueryService, read_only: bool) -> None:
        self._service, self.review, self.kg = service, service.run.review, service.kg
        self.is_read_only = read_only or service.run.folder.is_read_only
        # Every question is asked, so most have no further answer.
        self._predictor = service.run.for_open_questions(self._level().predictor)
        self._work: WorkList | None = None
        self._links: list[Link] = []
        self._by_ids: dict[tuple[str, str, str], Link] = {}
        self._decided_before = 0
        self._is_ready = False
        self._making: asyncio.Task[None] | None = None

    # Making the list, in steps between the questions of others.

    def renew(self) -> None:
        """Begin to make the list, unless that is being done."""
        if self._making is None or self._making.done():
            self._is_ready = False
            self._making = asyncio.create_task(self._make())

    def close(self) -> None:
        """Make no more of the list."""
        if self._making is not None:
            self._making.cancel()

    async def _make(self) -> None:
        self._decided_before = len(self.review.decisions)
        self._work = work = WorkList(self.review.informed(self._predictor))
        steps = work.steps()
        while not await self._took_last(steps):
            pass
        self._links = work.links[:_MOST_KEPT]
        self._by_ids = {link.triple: link for link in self._links}
        self._is_ready = True

    async def _took_last(self, steps: Iterator[None]) -> bool:
        """Take a step, and return whether it was the last; where there is no room, wait."""
        try:
            return await self._service.compute(lambda: next(steps, _DONE)) is _DONE
        except (BusyError, LateError):
            await asyncio.sleep(_SECONDS_UNTIL_AGAIN)
            return False

    def _level(self) -> BudgetLevel:
        """The best level that is predicted to make the list in time; the cheapest if none is."""
        levels = self._service.levels
        count = 2 * len(every_question(self.kg))
        fitting = [level for level in levels if count * level.predicted_seconds <= _SECONDS_TO_MAKE]
        return (fitting or levels[:1])[-1]

    # Looking at it.

    async def part(self, relation: str, least: float, reviewer: str, limit: int) -> WorkListPart:
        """The first links that wait; the list is begun if nobody has asked for it before."""
        if self._making is not None and self._making.done() and not self._is_ready:
            failed, self._making = self._making, None
            failed.result()  # raises what went wrong; whoever asks next begins anew
        if self._making is None:
            self.renew()
        return await self._service.lookup(self._part, relation, least, reviewer, limit)

    def _part(self, relation: str, least: float, reviewer: str, limit: int) -> WorkListPart:
        waiting = self.review.waiting(self._links, reviewer) if self._is_ready else []
        probable = [link for link in waiting if (link.probability or 0.0) >= least]
        chosen = [link for link in probable if relation in ("", link.relation.id)]
        counts = Counter(link.relation for link in probable)
        work = self._work
        return WorkListPart(
            is_ready=self._is_ready,
            questions=0 if work is None else work.done,
            question_count=0 if work is None else len(work.questions),
            links=[_proposed(link) for link in chosen[:limit]],
            waiting=len(chosen),
            relations=[RelationCount(id=each.id, name=each.name, count=counts[each]) for each in self.kg.relations],
            counts=self.counts(reviewer),
            decided_since=max(0, len(self.review.decisions) - self._decided_before),
            is_read_only=self.is_read_only,
            notes=self.review.decisions.notes(self.review.identity),
        )

    def counts(self, reviewer: str) -> DecisionCounts:
        """What was decided, and what a reviewer has skipped."""
        decisions = self.review.decisions
        accepted, rejected = len(decisions.accepted), len(decisions.rejected)
        return DecisionCounts(accepted=accepted, rejected=rejected, skipped=decisions.skipped_by(reviewer))

    async def explained(self, head: str, relation: str, tail: str) -> ExplainedLink:
        """A link with its reasons."""
        ids = await self._service.lookup(self._ids, head, relation, tail)
        return await self._service.compute(lambda: self._explained(ids))

    def _ids(self, head: str, relation: str, tail: str) -> tuple[str, str, str]:
        row = self._service.names.triple(head, relation, tail)
        return self.kg.entities[row[0]].id, self.kg.relations[row[1]].id, self.kg.entities[row[2]].id

    def _explained(self, ids: tuple[str, str, str]) -> ExplainedLink:
        link = self._by_ids.get(ids) or link_of(self.review.informed(self._predictor), ids)
        decided = self.review.decisions.of(ids)
        return ExplainedLink(
            **_proposed(link).model_dump(),
            side=link.found.side,
            reasons=[reason_given(reason) for reason in link.reasons],
            decision=None if decided is None else decided.outcome,
            reviewer=None if decided is None else decided.reviewer,
        )

    # Deciding.

    async def decide(self, wanted: LinkToDecide) -> DecisionMade:
        """Keep a decision in the run."""
        return await self._service.lookup(self._decide, wanted)

    def _decide(self, wanted: LinkToDecide) -> DecisionMade:
        reviewer = checked_reviewer(wanted.reviewer)
        ids = self.review.link(*self._ids(wanted.head, wanted.relation, wanted.tail))
        self.review.decide([(ids, wanted.decision)], reviewer)
        return self._made(ids, wanted.decision, reviewer)

    async def undo(self, wanted: UndoRequest) -> DecisionMade:
        """Undo what a reviewer did last."""
        return await self._service.lookup(self._undo, checked_reviewer(wanted.reviewer))

    def _undo(self, reviewer: str) -> DecisionMade:
        undone = self.review.undo(reviewer=reviewer)
        if undone is None:
            return DecisionMade(head=None, relation=None, tail=None, decision=None, counts=self.counts(reviewer))
        return self._made(undone.triple, undone.outcome, reviewer)

    def _made(self, ids: tuple[str, str, str], outcome: Outcome, reviewer: str) -> DecisionMade:
        head, relation, tail = self.review.indices([ids])[0].tolist()
        return DecisionMade(
            head=Named.model_validate(self.kg.entities[head]),
            relation=Named.model_validate(self.kg.relations[relation]),
            tail=Named.model_validate(self.kg.entities[tail]),
            decision=outcome,
            counts=self.counts(reviewer),
        )


_DONE = object()


def _proposed(link: Link) -> ProposedLink:
    return ProposedLink(
        head=EntitySummary.model_validate(link.head),
        relation=Named.model_validate(link.relation),
        tail=EntitySummary.model_validate(link.tail),
        probability=link.probability,
    )


def as_table(review: Review) -> str:
    """All decisions in effect as TSV."""
    rows, stream = review.rows(), io.StringIO()
    write_rows(stream, [REVIEW_COLUMNS, *([str(row[column]) for column in REVIEW_COLUMNS] for row in rows)], "\t")
    return stream.getvalue()


def review_routes(desk: Desk, service: QueryService) -> APIRouter:
    """What a reviewer needs; a server that is read-only shows it, and refuses decisions."""
    router = APIRouter(prefix="/review")
    refused: dict[int | str, dict[str, Any]] = {403: {"model": ErrorResponse}}

    @router.get("")
    async def part(
        relation: Annotated[str, Query(max_length=1000)] = "",
        min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
        reviewer: Annotated[str, Query(min_length=1, max_length=100)] = _ANYONE,
        limit: Annotated[int, Query(ge=1, le=_MOST_SENT)] = 20,
    ) -> WorkListPart:
        """The links that wait to be reviewed, the most probable first, and how many were decided."""
        return await desk.part(relation, min_probability, checked_reviewer(reviewer), limit)

    @router.get("/link")
    async def link(head: Id, relation: Id, tail: Id) -> ExplainedLink:
        """A link, by ids or names, with the reasons for it."""
        return await desk.explained(head, relation, tail)

    @router.post("/renew")
    async def renew() -> WorkListPart:
        """Make the list again, now that more is known."""
        desk.renew()
        return await desk.part("", 0.0, _ANYONE, 1)

    @router.post("/decide", response_model=DecisionMade, responses=refused)
    async def decide(wanted: LinkToDecide) -> DecisionMade | Response:
        """Accept, reject or skip a link; it is kept in the run before this is answered."""
        return _refusal(service) if desk.is_read_only else await desk.decide(wanted)

    @router.post("/undo", response_model=DecisionMade, responses=refused)
    async def undo(wanted: UndoRequest) -> DecisionMade | Response:
        """Undo what a reviewer did last."""
        return _refusal(service) if desk.is_read_only else await desk.undo(wanted)

    @router.get("/export", response_class=Response, responses={200: {"content": dict.fromkeys(_EXPORTED.values(), {})}})
    async def export(format: Literal["tsv", "nt"] = "tsv") -> PlainTextResponse:
        """All decisions as TSV, or the accepted links as N-Triples."""
        name = {"Content-Disposition": f'attachment; filename="decisions.{format}"'}
        if format == "tsv":
            text = await service.lookup(as_table, desk.review)
        else:
            text = await service.lookup(lambda: ntriples([each.triple for each in desk.review.decisions.accepted]))
        return PlainTextResponse(text, headers=name, media_type=_EXPORTED[format])

    return router


def _refusal(service: QueryService) -> Response:
    reason = f"this server is read-only, so {service.run.folder.name} takes no decisions from it."
    return error_reply(403, f"{reason} Ask whoever started it, or review with: cascader review RUN").response()
