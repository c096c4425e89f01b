"""What goes wrong, as JSON: what was found, what was expected, what to do; never a traceback."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cascader.errors import CascaderError, StorageError, UnknownNameError
from cascader.serve.refusals import BusyError, LateError
from cascader.serve.schemas import Problem

_SHOWN = 200  # characters of what was found


@dataclass(frozen=True)
class Failure:
    """A status and what is said with it."""

    status: int
    body: Problem
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        """As it is sent."""
        return JSONResponse(self.body.model_dump(), self.status, dict(self.headers))


def failure(status: int, error: str, **headers: str) -> Failure:
    """A failure without suggestions; headers by name, with underscores."""
    return Failure(status, Problem(error=error), {name.replace("_", "-"): value for name, value in headers.items()})


def problem_of(error: CascaderError) -> Failure:
    """What to say of an error that the client can do something about."""
    match error:
        case UnknownNameError():
            return Failure(404, Problem(error=str(error), suggestions=list(error.candidates)))
        case BusyError():
            return failure(429, str(error), Retry_After="1")
        case LateError() | StorageError():
            return failure(503, str(error), Retry_After="5")
        case _:
            return failure(422, str(error))


def of_validation(error: RequestValidationError) -> Failure:
    """What to say of a request that is not what it should be."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return failure(400, f"the request is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}.")
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    if first["type"] == "too_long" and isinstance(first.get("input"), list):
        count, limit = len(first["input"]), first["ctx"]["max_length"]
        return failure(413, f"{place} has {count:,} items, of at most {limit:,}. Send them in several requests.")
    if isinstance(first.get("input"), bytes):
        return failure(422, "the body is not marked as JSON. Send it with the header Content-Type: application/json.")
    found = repr(first.get("input"))
    shortened = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
    said = first["msg"].removeprefix("Value error, ")
    return failure(422, f"{place}: {said}, found {shortened}. See /openapi.json for what is expected.")


def of_http(error: HTTPException) -> Failure:
    """What to say where no route fits, or a body could not be parsed at all."""
    words = {404: "there is nothing here", 405: "this cannot be asked in that way"}
    said = words.get(error.status_code, str(error.detail).rstrip("."))
    return Failure(error.status_code, Problem(error=f"{said}. See /openapi.json."), dict(error.headers or {}))


def say_problems(app: FastAPI) -> None:
    """Let an app say all errors in this form."""

    async def known(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401 - FastAPI wants it of any exception
        return problem_of(error).response()

    async def invalid(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401
        return of_validation(error).response()

    async def http(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401
        return of_http(error).response()

    app.add_exception_handler(CascaderError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
