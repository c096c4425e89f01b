"""The routes: what can be asked of a run, and the page that asks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

import cascader
from cascader.graph import SPLITS
from cascader.runs import Run
from cascader.serve import schemas
from cascader.serve.limits import Batching, Limits
from cascader.serve.middleware import COUNTS, Guarded, Logged, hosts_of
from cascader.serve.problems import failure, say_problems
from cascader.serve.searching import AskableRelations, EntitySearch, example_questions
from cascader.serve.service import Desk

PAGE = Path(__file__).parent / "page"
#: A report is one file with its style and its figures inside.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem} for status in (400, 401, 404, 408, 413, 422, 429, 500, 503)
}


def create_app(
    run: Run,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    batching: Batching = Batching(),  # noqa: B008 - likewise
) -> FastAPI:
    """A run as a web application; what its budgets need is prepared now, so that no request waits for it."""
    desk = Desk(run, limits, batching)

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="cascader",
        version=cascader.__version__,
        summary="Links that a knowledge graph lacks, with what every tier made of them.",
        docs_url=None,  # they load from elsewhere
        redoc_url=None,
        lifespan=closing,
    )
    app.include_router(_asking(desk), prefix="/api", responses=_PROBLEMS)
    app.include_router(_looking_up(desk), prefix="/api", responses=_PROBLEMS)
    app.include_router(_page(run), include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE, check_dir=False))
    say_problems(app)
    app.add_middleware(Guarded, limits=limits, hosts=hosts_of(host), token=token)
    app.add_middleware(Logged)  # the last to be added is the first that a request meets
    return app


def _asking(desk: Desk) -> APIRouter:
    """Questions, which the models answer."""
    router = APIRouter()

    @router.post("/answer")
    async def answer(ask: schemas.Ask, request: Request) -> schemas.Answers:
        """The best answers to a question, each with what every tier made of it."""
        found = await desk.answer(ask)
        _count(request, [found])
        return found

    @router.post("/batch")
    async def batch(ask: schemas.AskBatch, request: Request) -> schemas.BatchAnswers:
        """The answers to several questions; in place of one that cannot be answered, why."""
        found = await desk.answer_batch(ask.questions)
        _count(request, found)
        return schemas.BatchAnswers(answers=found)

    @router.post("/classify")
    async def classify(ask: schemas.AskTriples, request: Request) -> schemas.Verdicts:
        """Whether triples are true; one that the graph has is judged as if it had not."""
        request.scope[COUNTS]["questions"] = 2 * len(ask.triples)
        return await desk.classify(ask.triples)

    return router


def _count(request: Request, found: list[Any]) -> None:
    answers = [each for each in found if isinstance(each, schemas.Answers)]
    request.scope[COUNTS].update(questions=len(found), pairs_read=sum(each.cost.pairs_read for each in answers))


def _looking_up(desk: Desk) -> APIRouter:
    """What is known without asking a model."""
    router, kg = APIRouter(), desk.kg
    search, askable = EntitySearch(kg), AskableRelations(kg)
    graph_body = _graph_body(desk)

    @router.get("/health")
    async def health() -> schemas.Health:
        """That the server is there."""
        return schemas.Health(run=desk.run.folder.resolve().name, version=cascader.__version__)

    @router.get("/graph")
    def graph() -> schemas.Graph:
        """The graph, the tiers, and the budgets to choose from."""
        return graph_body.model_copy(update={"has_report": _report(desk.run).exists()})

    @router.get("/entities")
    def entities(
        q: Annotated[str, Query(max_length=1000)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> schemas.FoundEntities:
        """Entities by any part of their name or id."""
        found = search.find(q)
        some = [schemas.Described.of(kg.entities[place]) for place in found[:limit]]
        return schemas.FoundEntities(entities=some, total=len(found))

    @router.get("/entity")
    def entity(id: Annotated[str, Query(max_length=1000)]) -> schemas.EntityBody:
        """An entity, by id or name, and what can be asked about it."""
        place = desk.names.entity(id)
        relations = [
            schemas.AskableRelation(id=relation.id, name=relation.name, side=side, facts=facts, share=share)
            for relation, side, facts, share in askable.of(place)
        ]
        return schemas.EntityBody(**kg.entities[place]._asdict(), relations=relations)

    return router


def _graph_body(desk: Desk) -> schemas.Graph:
    kg, run = desk.kg, desk.run
    counts = np.bincount(kg.triples()[:, 1], minlength=len(kg.relations)).tolist()
    return schemas.Graph(
        name=kg.name,
        entity_count=len(kg.entities),
        relation_count=len(kg.relations),
        triple_counts={split: len(kg.split(split)) for split in SPLITS},
        tiers=[
            schemas.TierBody(name=name, kind=type(model).__name__, parameters=model.parameter_count)
            for name, model in run.tiers.items()
        ],
        relations=[
            schemas.CountedRelation(id=relation.id, name=relation.name, count=count)
            for relation, count in zip(kg.relations, counts, strict=True)
        ],
        has_probabilities=desk.stops[0].answering.calibration is not None,
        reads_new="dual" in run.tiers,
        has_report=False,
        budgets=[
            schemas.StopBody(
                pairs=stop.pairs, tiers=stop.tiers, valid_mrr=stop.valid_mrr, predicted_seconds=stop.seconds
            )
            for stop in desk.stops
        ],
        examples=[
            schemas.Example(
                entity=schemas.Named.of(kg.entities[entity]),
                relation=schemas.Named.of(kg.relations[relation]),
                side=side,
            )
            for entity, relation, side in example_questions(kg)
        ],
    )


def _page(run: Run) -> APIRouter:
    """The page, and the run's report."""
    router = APIRouter()

    @router.get("/")
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    @router.get("/report")
    async def report() -> Response:
        if not _report(run).exists():
            return failure(404, f"this run has no report yet. Make it with: cascader report {run.folder}").response()
        return FileResponse(_report(run), headers={"Content-Security-Policy": _REPORT_POLICY})

    return router


def _report(run: Run) -> Path:
    return run.folder / "report" / "report.html"
