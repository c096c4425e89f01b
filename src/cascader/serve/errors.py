"""What can go wrong, and how a client is told: always JSON, never a traceback."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cascader.errors import CascaderError, StorageError, UnknownNameError
from cascader.serve.schemas import ErrorResponse

_SHOWN_CHARACTERS = 200  # of a value that was not expected


class BusyError(CascaderError):
    """Too many questions are waiting, or the server is shutting down."""


class LateError(CascaderError):
    """An answer took longer than a client may wait."""


@dataclass(frozen=True)
class ErrorReply:
    """A status and the body that goes with it."""

    status: int
    body: ErrorResponse
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        """The reply as it is sent."""
        return JSONResponse(self.body.model_dump(), self.status, dict(self.headers))


def error_reply(status: int, error: str, **headers: str) -> ErrorReply:
    """A reply without suggestions; underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ErrorReply(status, ErrorResponse(error=error), named)


def reply_to(error: CascaderError) -> ErrorReply:
    """The reply to an error that the client can do something about."""
    match error:
        case UnknownNameError():
            return ErrorReply(404, ErrorResponse(error=str(error), suggestions=list(error.candidates)))
        case BusyError():
            return error_reply(429, str(error), Retry_After="1")
        case LateError() | StorageError():
            return error_reply(503, str(error), Retry_After="5")
        case _:
            return error_reply(422, str(error))


def reply_to_invalid(error: RequestValidationError) -> ErrorReply:
    """The reply to a request that does not match its schema."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_reply(400, f"the request is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}.")
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    if first["type"] == "too_long" and isinstance(first.get("input"), list):
        count, limit = len(first["input"]), first["ctx"]["max_length"]
        return error_reply(413, f"{place} has {count:,} items, of at most {limit:,}. Send them in several requests.")
    if isinstance(first.get("input"), bytes):
        return error_reply(422, "the body is not marked as JSON. Send the header Content-Type: application/json.")
    found = repr(first.get("input"))
    shortened = found if len(found) <= _SHOWN_CHARACTERS else f"{found[:_SHOWN_CHARACTERS]}…"
    message = first["msg"].removeprefix("Value error, ")
    return error_reply(422, f"{place}: {message}, found {shortened}. See /openapi.json for what is expected.")


def reply_to_http(error: HTTPException) -> ErrorReply:
    """The reply where no route matches, or a body could not be parsed at all."""
    messages = {404: "there is nothing at this path", 405: "this path does not support that method"}
    message = messages.get(error.status_code, str(error.detail).rstrip("."))
    body = ErrorResponse(error=f"{message}. See /openapi.json.")
    return ErrorReply(error.status_code, body, dict(error.headers or {}))


def install_error_handlers(app: FastAPI) -> None:
    """Make an app reply to every error in this form."""

    async def known(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401 - FastAPI's type is any exception
        return reply_to(error).response()

    async def invalid(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401
        return reply_to_invalid(error).response()

    async def http(_: Request, error: Any) -> JSONResponse:  # noqa: ANN401
        return reply_to_http(error).response()

    app.add_exception_handler(CascaderError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
