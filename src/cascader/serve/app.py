"""The routes, what can be asked of a run, and the process that serves them: a socket and a graceful shutdown."""

import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import uvicorn
from fastapi import APIRouter, FastAPI, Query, Request, Security
from fastapi.responses import FileResponse, Response
from fastapi.security import HTTPBearer
from starlette.staticfiles import StaticFiles

import cascader
from cascader.errors import SettingsError
from cascader.graph import SPLITS
from cascader.runs import Run, can_read_new, load_run
from cascader.serve import schemas
from cascader.serve.batcher import Batching
from cascader.serve.middleware import (
    COUNTS,
    AccessMiddleware,
    BodyLimitMiddleware,
    RequestLogMiddleware,
    allowed_hosts,
    error_reply,
    install_error_handlers,
    is_loopback,
    request_log,
)
from cascader.serve.names import AskableRelations, EntitySearch, example_questions
from cascader.serve.schemas import Limits
from cascader.serve.service import QueryService

PAGE = Path(__file__).parent / "page"
#: How long open requests may take once the server is told to stop.
_GRACE_SECONDS = 5
#: A report is one file with its style and its figures inline.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse} for status in (400, 401, 404, 408, 413, 422, 429, 500, 503)
}


def create_app(
    run: Run,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    batching: Batching = Batching(),  # noqa: B008 - likewise
) -> FastAPI:
    """A run as a web application; its budgets are prepared now, so that no request has to wait for that."""
    service = QueryService(run, limits, batching)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="cascader",
        version=cascader.__version__,
        summary="Predicts missing links of a knowledge graph, and shows what every tier made of them.",
        docs_url=None,  # they load scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
    )
    # The middleware checks the token, before a body is read; this only documents it in /openapi.json.
    security = [Security(HTTPBearer(auto_error=False))] if token else []
    for router in (_question_routes(service), _lookup_routes(service)):
        app.include_router(router, prefix="/api", responses=_ERRORS, dependencies=security)
    app.include_router(_page_routes(run), include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE, check_dir=False))
    install_error_handlers(app)
    # A request passes the last one first.
    app.add_middleware(BodyLimitMiddleware, limits=limits)
    app.add_middleware(AccessMiddleware, hosts=allowed_hosts(host), token=token)
    app.add_middleware(RequestLogMiddleware)
    return app


def _question_routes(service: QueryService) -> APIRouter:
    """Questions that the models answer."""
    router = APIRouter()

    @router.post("/answer")
    async def answer(question: schemas.Question, request: Request) -> schemas.Answers:
        """The best answers to a question, each with what every tier made of it."""
        found = await service.answer(question)
        _count(request, [found])
        return found

    @router.post("/batch")
    async def batch(batch: schemas.QuestionBatch, request: Request) -> schemas.BatchAnswers:
        """The answers to several questions; a question that cannot be answered gets an error instead."""
        found = await service.answer_batch(batch.questions)
        _count(request, found)
        return schemas.BatchAnswers(answers=found)

    @router.post("/classify")
    async def classify(batch: schemas.TripleBatch, request: Request) -> schemas.Verdicts:
        """Whether triples are true; one that is in the graph is judged as if it were not."""
        request.scope[COUNTS]["questions"] = 2 * len(batch.triples)
        return await service.classify(batch.triples)

    return router


def _count(request: Request, found: list[Any]) -> None:
    answers = [each for each in found if isinstance(each, schemas.Answers)]
    request.scope[COUNTS].update(questions=len(found), pairs_read=sum(each.cost.pairs_read for each in answers))


def _lookup_routes(service: QueryService) -> APIRouter:
    """What is known without asking a model."""
    router, kg = APIRouter(), service.kg
    search, askable = EntitySearch(kg), AskableRelations(kg)
    summary = _graph_summary(service)

    @router.get("/health")
    async def health() -> schemas.Health:
        """Whether the server is up, and which run it serves."""
        return schemas.Health(run=service.run.folder.path.resolve().name, version=cascader.__version__)

    @router.get("/graph")
    def graph() -> schemas.GraphSummary:
        """The graph, the tiers, and the budgets to choose from."""
        return summary.model_copy(update={"has_report": _report(service.run).exists()})

    @router.get("/entities")
    def entities(
        q: Annotated[str, Query(max_length=1000)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> schemas.EntityMatches:
        """Entities by any part of their name or id."""
        found = search.find(q)
        first = [schemas.EntitySummary.model_validate(kg.entities[place]) for place in found[:limit]]
        return schemas.EntityMatches(entities=first, total=len(found))

    @router.get("/entity")
    def entity(id: Annotated[str, Query(max_length=1000)]) -> schemas.EntityDetails:
        """An entity, by id or name, and what can be asked about it."""
        place = service.names.entity(id)
        relations = [
            schemas.AskableRelation(id=relation.id, name=relation.name, side=side, facts=facts, share=share)
            for relation, side, facts, share in askable.of(place)
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
            reason = f"this run has no report yet. Make one with: cascader report {run.folder.path}"
            return error_reply(404, reason).response()
        return FileResponse(_report(run), headers={"Content-Security-Policy": _REPORT_POLICY})

    return router


def _report(run: Run) -> Path:
    return run.folder.path / "report" / "report.html"


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    batching: Batching = Batching(),  # noqa: B008 - a frozen value
) -> None:
    """Serve a run until SIGINT or SIGTERM; `ready` gets the address once connections are accepted."""
    if not is_loopback(host) and not token:
        raise SettingsError(
            f"other machines can reach {host}, so anyone there could ask. Set --token TOKEN, or serve on 127.0.0.1."
        )
    with _bound(host, port) as listener, _exit_on_signals():
        app = create_app(load_run(folder), host=host, token=token, batching=batching)
        _log_requests()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE_SECONDS
        )
        name = f"[{host}]" if ":" in host else host
        # The socket listens already: whoever connects before uvicorn runs is answered a moment later.
        ready(f"http://{name}:{listener.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make SIGINT and SIGTERM a normal exit: before uvicorn runs, and when it raises them again after its shutdown."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the socket before models are loaded, so that a port in use is reported at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise SettingsError(
            f"{host!r} and port {port} are not a valid address: {error}. Use --host 127.0.0.1."
        ) from error
    # asyncio turns Nagle's delay off only for sockets that name their protocol; else each answer would wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # else two servers could bind the port, and only one of them listen
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"port {port} of {host} is in use. Choose another with --port, or --port 0 for any"
            else:
                reason = f"cannot listen on port {port} of {host}: {error.strerror}. Choose another --host or --port"
            raise SettingsError(f"{reason}.") from error
        yield listener


def _log_requests() -> None:
    """Log one line of JSON per request to standard error; uvicorn itself logs only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    request_log.handlers, request_log.propagate = [handler], False
    request_log.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
