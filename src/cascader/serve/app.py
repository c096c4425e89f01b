"""The application: its routes, and what can be asked of a run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request, Security
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles

import cascader
from cascader.graph import SPLITS
from cascader.runs import Run, can_read_new
from cascader.serve import schemas
from cascader.serve.batcher import Batching
from cascader.serve.connections import CONNECTIONS, ConnectionMiddleware, Connections
from cascader.serve.metrics import CONTENT_TYPE, Metrics
from cascader.serve.middleware import (
    COUNTS,
    AccessMiddleware,
    BodyMiddleware,
    RequestLogMiddleware,
    allowed_hosts,
    error_reply,
    install_error_handlers,
)
from cascader.serve.names import AskableRelations, EntitySearch, example_questions
from cascader.serve.responses import EncodedAnswers
from cascader.serve.review import Desk, review_routes
from cascader.serve.schemas import Limits
from cascader.serve.service import QueryService

PAGE = Path(__file__).parent / "page"
#: A report is one file with its style and its figures inline, and belongs to the run: in a sandbox, it has no origin.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; form-action 'none'; "
    "base-uri 'none'; sandbox"
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse} for status in (400, 401, 404, 408, 413, 422, 500, 503)
}


def create_app(
    run: Run,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    read_only: bool = False,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    batching: Batching = Batching(),  # noqa: B008 - likewise
) -> FastAPI:
    """A run as a web application; its budgets are prepared now, so that no request has to wait for that.

    If it is `read_only`, it takes no decisions of reviewers.
    """
    service, connections = QueryService(run, limits, batching), Connections(limits)
    desk = Desk(service, read_only)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
        yield {CONNECTIONS: connections}
        desk.close()
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="cascader",
        version=cascader.__version__,
        summary="Predicts missing links of a knowledge graph, and shows what every tier made of them.",
        docs_url=None,  # they load scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    security = [Security(HTTPBearer(auto_error=False))] if token else []
    metrics = Metrics()
    metrics.watch("cascader_questions_waiting", "Questions that wait.", lambda: service.waiting)
    metrics.watch("cascader_questions_waiting_limit", "Questions that may wait.", lambda: limits.waiting)
    metrics.watch("cascader_connections", "Open connections.", lambda: len(connections))
    routers = _question_routes(service), _lookup_routes(service), review_routes(desk, service)
    for router in (*routers, _metrics_routes(metrics)):
        app.include_router(router, prefix="/api", responses=_ERRORS, dependencies=security)
    app.include_router(_page_routes(run), include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE, check_dir=False))
    install_error_handlers(app)
    # A request passes the last one first.
    app.add_middleware(BodyMiddleware, limits=limits)
    if token:
        app.add_middleware(AccessMiddleware, token=token)
    # DNS rebinding: another site's page whose name resolves to this machine must not get answers.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(host), www_redirect=False)
    app.add_middleware(RequestLogMiddleware, metrics=metrics)
    app.add_middleware(ConnectionMiddleware, limits=limits)
    return app


def _metrics_routes(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", response_class=PlainTextResponse)
    async def read() -> PlainTextResponse:
        """Requests, times, questions waiting and memory, in the text format of Prometheus."""
        return PlainTextResponse(metrics.text(), media_type=CONTENT_TYPE)

    return router


def _question_routes(service: QueryService) -> APIRouter:
    """Questions that the models answer."""
    router = APIRouter()

    @router.post("/answer", response_model=schemas.Answers)
    async def answer(question: schemas.Question, request: Request) -> Response:
        """The best answers to a question, each with what every tier made of it."""
        found = await service.answer(question)
        _count(request, [found])
        return Response(found.content, media_type="application/json")

    @router.post("/batch", response_model=schemas.BatchAnswers)
    async def batch(batch: schemas.QuestionBatch, request: Request) -> Response:
        """The answers to several questions; a question that cannot be answered gets an error instead."""
        found = await service.answer_batch(batch.questions)
        _count(request, found)
        return Response(b'{"answers":[%b]}' % b",".join(map(_encoded, found)), media_type="application/json")

    @router.post("/classify")
    async def classify(batch: schemas.TripleBatch, request: Request) -> schemas.Verdicts:
        """Whether triples are true; one that is in the graph is judged as if it were not."""
        request.scope[COUNTS]["questions"] = 2 * len(batch.triples)
        return await service.classify(batch.triples)

    return router


def _count(request: Request, found: Sequence[EncodedAnswers | schemas.ErrorResponse]) -> None:
    pairs = sum(each.pairs_read for each in found if isinstance(each, EncodedAnswers))
    request.scope[COUNTS].update(questions=len(found), pairs_read=pairs)


def _encoded(answers: EncodedAnswers | schemas.ErrorResponse) -> bytes:
    return answers.content if isinstance(answers, EncodedAnswers) else answers.model_dump_json().encode()


def _lookup_routes(service: QueryService) -> APIRouter:
    """What is known without asking a model."""
    router, kg = APIRouter(), service.kg
    search, askable = EntitySearch(kg), AskableRelations(kg)
    summary = _graph_summary(service)

    @router.get("/health")
    async def health() -> schemas.Health:
        """Whether the server is up, and which run it serves."""
        return schemas.Health(run=service.run.folder.name, version=cascader.__version__)

    @router.get("/graph")
    def graph() -> schemas.GraphSummary:
        """The graph, the tiers, and the budgets to choose from."""
        return summary.model_copy(update={"has_report": _report(service.run).exists()})

    @router.get("/entities")
    async def entities(
        q: Annotated[str, Query(max_length=1000)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> schemas.EntityMatches:
        """Entities by any part of their name or id."""
        found = await service.lookup(search.find, q)
        first = [schemas.EntitySummary.model_validate(kg.entities[place]) for place in found[:limit]]
        return schemas.EntityMatches(entities=first, total=len(found))

    @router.get("/entity")
    async def entity(id: Annotated[str, Query(max_length=1000)]) -> schemas.EntityDetails:
        """An entity, by id or name, and what can be asked about it."""
        place = await service.lookup(service.names.entity, id)
        relations = [
            schemas.AskableRelation(id=relation.id, name=relation.name, side=side, facts=facts, share=share)
            for relation, side, facts, share in await service.lookup(askable.of, place)
        ]
        return schemas.EntityDetails(**kg.entities[place]._asdict(), relations=relations)

    return router


def _graph_summary(service: QueryService) -> schemas.GraphSummary:
    kg, run = service.kg, service.run
    counts = np.bincount(kg.triples()[:, 1], minlength=len(kg.relations)).tolist()
    return schemas.GraphSummary(
        name=kg.name,
        entity_count=len(kg.entities),
        relation_count=len(kg.relations),
        triple_counts={split: len(kg.split(split)) for split in SPLITS},
        tiers=[
            schemas.TierSummary(name=name, kind=type(model).__name__, parameters=model.parameter_count)
            for name, model in run.tiers.items()
        ],
        relations=[
            schemas.RelationCount(id=relation.id, name=relation.name, count=count)
            for relation, count in zip(kg.relations, counts, strict=True)
        ],
        has_probabilities=service.levels[0].predictor.calibration is not None,
        reads_new=can_read_new(run.tiers),
        has_report=False,
        budgets=[schemas.BudgetChoice.model_validate(level) for level in service.levels],
        examples=[
            schemas.ExampleQuestion(
                entity=schemas.Named.model_validate(kg.entities[entity]),
                relation=schemas.Named.model_validate(kg.relations[relation]),
                side=side,
            )
            for entity, relation, side in example_questions(kg)
        ],
    )


def _page_routes(run: Run) -> APIRouter:
    """The page, and the run's report."""
    router = APIRouter()

    @router.get("/")
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    @router.get("/report")
    async def report() -> Response:
        if not _report(run).exists():
            reason = f"this run has no report yet. Make one with: cascader report {run.folder.address}"
            return error_reply(404, reason).response()
        return FileResponse(_report(run), headers={"Content-Security-Policy": _REPORT_POLICY})

    return router


def _report(run: Run) -> Path:
    return run.folder.path / "report" / "report.html"
