"""What every request passes, the log, the access checks and the size limit, and how errors are told: always JSON."""

import asyncio
import hmac
import json
import logging
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from reprlib import Repr
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascader.errors import CascaderError, StorageError, UnknownNameError
from cascader.serve.batcher import AbandonedError, BusyError, LateError
from cascader.serve.metrics import Metrics
from cascader.serve.schemas import ErrorResponse, Limits

#: Shows the beginning of a value that was not expected: all of a large one would take long to write out.
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring = 2, 100


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
        case BusyError() | AbandonedError():
            return error_reply(503, str(error), Retry_After="1")
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
    found, message = _SHORT.repr(first.get("input")), first["msg"].removeprefix("Value error, ")
    return error_reply(422, f"{place}: {message}, found {found}. See /openapi.json for what is expected.")


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


#: One line of JSON per request.
request_log = logging.getLogger("cascader.serve.requests")
#: The key in a request's scope of the counts for its log line.
COUNTS = "cascader.counts"

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # always revalidated, so that no page meets the scripts of another version
}
#: A link cannot send a token, so a client that has sent it to the API gets a cookie for the report.
_REPORT, _REPORT_COOKIE = "/report", "cascader-report"
#: As nginx logs it: the client left before its answer, and gets none.
_LEFT = 499


class RequestLogMiddleware:
    """Logs and counts every request, replies if the server fails or ends, and adds headers to every response."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, counts = time.perf_counter(), {"questions": 0, "pairs_read": 0}
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        line |= {"method": scope["method"], "path": scope["path"], "status": _LEFT}
        scope[COUNTS] = counts

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                line["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, send_logged)
        except (Exception, asyncio.CancelledError) as error:
            if line["status"] == _LEFT:
                await self._apology(error, line).response()(scope, receive, send_logged)
        finally:
            seconds = time.perf_counter() - started
            path = scope["path"] if "route" in scope else "other"  # no route of ours has a path with parameters
            self._metrics.add(path, line["status"], seconds, **counts)
            request_log.info(json.dumps({**line, "ms": round(1000 * seconds, 2), **counts}))

    def _apology(self, error: BaseException, line: dict[str, Any]) -> ErrorReply:
        """The reply to what nobody has foreseen; uvicorn cancels what still runs when it has to end."""
        if isinstance(error, asyncio.CancelledError):
            return error_reply(503, "the server is shutting down. Try again when it is back.", Retry_After="1")
        line["error"] = "".join(traceback.format_exception(error))
        return error_reply(500, "something went wrong in the server. Its log has the details.")


class AccessMiddleware:
    """Refuses requests to the API or the report without the token, before their bodies are read.

    FastAPI's HTTPBearer comes later, and strips bytes off a token that look like spaces: it only describes the API.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self._token = app, token.encode()
        self._cookie = hmac.digest(self._token, _REPORT.encode(), "sha256").hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        headers = Headers(scope=scope)
        has_token = self._has_token(headers)
        is_open = path != _REPORT and not path.startswith("/api/")
        if has_token or is_open or (path == _REPORT and self._has_cookie(headers)):
            await self.app(scope, receive, self._with_cookie(scope, send) if has_token else send)
            return
        reply = error_reply(
            401, "this server requires a token. Send the header Authorization: Bearer TOKEN", WWW_Authenticate="Bearer"
        )
        await reply.response()(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Headers are bytes, which Starlette decodes as Latin-1.
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip(" ").encode("latin-1"), self._token)

    def _has_cookie(self, headers: Headers) -> bool:
        given = cookie_parser(headers.get("cookie", "")).get(_REPORT_COOKIE, "")
        return hmac.compare_digest(given.encode(), self._cookie.encode())

    def _with_cookie(self, scope: Scope, send: Send) -> Send:
        cookie = f"{_REPORT_COOKIE}={self._cookie}; Path={_REPORT}; HttpOnly; SameSite=Strict"
        if scope["scheme"] == "https":  # a proxy says so
            cookie += "; Secure"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
            await send(message)

        return send_with_cookie


class BodyMiddleware:
    """Reads the whole body first, refuses one that is too large or too slow, and drops the work of who has left.

    Starlette's RequestBodyLimitMiddleware knows no time, and neither it nor uvicorn ends a request whose client left.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = await self._read(Headers(scope=scope), receive)
        if isinstance(body, ErrorReply):
            await body.response()(scope, receive, send)
        elif body is not None:
            await self._pass_on(scope, body, receive, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | ErrorReply | None:
        """The body, a refusal, or None if the client left."""
        limits = self._limits
        too_large = error_reply(
            413, f"the request has more than {limits.body_bytes:,} bytes, which is the limit. Send less at once."
        )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limits.body_bytes:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > limits.body_bytes:
                        return too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return error_reply(
                408, f"the request did not arrive completely within {limits.body_seconds:g} seconds. Send it faster."
            )

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the request be answered for as long as its client is there."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        leaving, is_sent = asyncio.ensure_future(receive()), False

        async def receive_replayed() -> Message:
            return messages.pop() if messages else await asyncio.shield(leaving)

        async def send_noted(message: Message) -> None:
            nonlocal is_sent
            is_sent = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        answering = asyncio.ensure_future(self.app(scope, receive_replayed, send_noted))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done() or is_sent:  # a client whose answer is complete is said to have left, too
                await answering
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait({answering, leaving})


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    return _parsed(address).is_loopback


def allowed_hosts(host: str) -> list[str]:
    """The names that clients may use for a server on `host`; any if that is every address."""
    with suppress(ValueError):  # a name
        if _parsed(host).is_unspecified:
            return ["*"]
    return ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host]


def _parsed(address: str) -> IPv4Address | IPv6Address:
    parsed = ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
