"""What every request passes, the log, the access checks and the size limit, and how errors are told: always JSON."""

import asyncio
import hmac
import json
import logging
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascader.errors import CascaderError, StorageError, UnknownNameError
from cascader.serve.batcher import BusyError, LateError
from cascader.serve.schemas import ErrorResponse, Limits

_SHOWN_CHARACTERS = 200  # of a value that was not expected


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
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class RequestLogMiddleware:
    """Logs every request, replies with an apology if the server fails, and adds security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, counts = time.perf_counter(), {"questions": 0, "pairs_read": 0}
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        line |= {"method": scope["method"], "path": scope["path"], "status": 0}
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
        except Exception as error:
            line["error"] = "".join(traceback.format_exception(error))
            if line["status"] == 0:
                reply = error_reply(500, "something went wrong in the server. Its log has the details.")
                await reply.response()(scope, receive, send_logged)
        finally:
            line["ms"] = round(1000 * (time.perf_counter() - started), 2)
            request_log.info(json.dumps({**line, **counts}))


class AccessMiddleware:
    """Refuses requests for another host's name, and requests to the API or the report without the token.

    Starlette's TrustedHostMiddleware does not know IPv6 addresses and replies in plain text; FastAPI's HTTPBearer
    would let a body be read before the token is checked.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, token: str) -> None:
        self.app, self._hosts, self._token = app, hosts, token.encode()
        self._cookie = hmac.digest(self._token, _REPORT.encode(), "sha256").hex() if token else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        await self.app(scope, receive, self._with_cookie(send) if self._has_token(headers) else send)

    def _refusal(self, path: str, headers: Headers) -> ErrorReply | None:
        host = headers.get("host", "")
        # DNS rebinding: another site's page whose name resolves to this machine must not get answers.
        if self._hosts is not None and _hostname(host) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return error_reply(400, f"this server does not go by the name {host!r}. Use one of: {names}.")
        is_protected = path.startswith("/api/") or path == _REPORT
        if not self._token or not is_protected or self._has_token(headers):
            return None
        if path == _REPORT and self._has_cookie(headers):
            return None
        return error_reply(
            401, "this server requires a token. Send the header Authorization: Bearer TOKEN", WWW_Authenticate="Bearer"
        )

    def _has_token(self, headers: Headers) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        return bool(self._token) and hmac.compare_digest(given, self._token)

    def _has_cookie(self, headers: Headers) -> bool:
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        return hmac.compare_digest(cookies.get(_REPORT_COOKIE, "").encode(), self._cookie.encode())

    def _with_cookie(self, send: Send) -> Send:
        cookie = f"{_REPORT_COOKIE}={self._cookie}; Path={_REPORT}; HttpOnly; SameSite=Strict"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
            await send(message)

        return send_with_cookie


class BodyLimitMiddleware:
    """Reads the whole body before anything else happens, and refuses one that is too large or too slow."""

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
        else:
            await self.app(scope, _replayed(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | ErrorReply:
        limits = self._limits
        too_large = error_reply(
            413, f"the request has more than {limits.body_bytes:,} bytes, which is the limit. Send less at once."
        )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limits.body_bytes:
            return too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.body_bytes:
                        return too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return error_reply(
                408, f"the request did not arrive completely within {limits.body_seconds:g} seconds. Send it faster."
            )


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receives the whole body first, then whatever else comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return messages.pop() if messages else await receive()

    return receive_replayed


def _hostname(host: str) -> str | None:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def allowed_hosts(host: str) -> frozenset[str] | None:
    """The names that clients may use for a server on `host`; None: any, because it listens on every address."""
    return None if host in ("0.0.0.0", "::") else frozenset({*_LOOPBACK, host.lower()})  # noqa: S104


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    return host in _LOOPBACK or host.startswith("127.")
