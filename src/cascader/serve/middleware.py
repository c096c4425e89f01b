"""What every request passes before it is looked at: its log line, its host, its token, its size."""

import asyncio
import hmac
import json
import logging
import time
import traceback
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascader.serve.limits import Limits
from cascader.serve.problems import Failure, failure

#: A line of JSON for each request.
request_log = logging.getLogger("cascader.serve.requests")
#: Where a request's counts are kept for its log line.
COUNTS = "cascader.counts"

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked for again each time, so that no page meets the scripts of another version
}
#: A link cannot send a token: who has sent it to the API is given this cookie for the report.
_REPORT, _REPORT_PASS = "/report", "cascader-report"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Logged:
    """Writes a line for each request, and says sorry where the server fails; every answer gets the safe headers."""

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

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                line["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            line["error"] = "".join(traceback.format_exception(error))
            if line["status"] == 0:
                sorry = failure(500, "something went wrong in the server, which its log describes. Ask something else.")
                await sorry.response()(scope, receive, sending)
        finally:
            line["ms"] = round(1000 * (time.perf_counter() - started), 2)
            request_log.info(json.dumps({**line, **counts}))


class Guarded:
    """Refuses requests for another host, without the token, or with a body that is too large or comes too slowly."""

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Collection[str] | None, token: str) -> None:
        self.app, self._limits, self._hosts, self._token = app, limits, hosts, token.encode()
        self._pass = hmac.digest(self._token, _REPORT.encode(), "sha256").hex() if token else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope["path"], headers)
        body: bytes = b""
        if refused is None:
            read = await self._body(headers, receive)
            refused, body = (read, b"") if isinstance(read, Failure) else (None, read)
        if refused is not None:
            await refused.response()(scope, receive, send)
            return
        await self.app(scope, _replay(body, receive), self._giving_pass(send) if self._has_token(headers) else send)

    def _has_token(self, headers: Headers) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        return bool(self._token) and hmac.compare_digest(given, self._token)

    def _has_pass(self, headers: Headers) -> bool:
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        return hmac.compare_digest(cookies.get(_REPORT_PASS, "").encode(), self._pass.encode())

    def _giving_pass(self, send: Send) -> Send:
        cookie = f"{_REPORT_PASS}={self._pass}; Path={_REPORT}; HttpOnly; SameSite=Strict"

        async def giving(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
            await send(message)

        return giving

    def _refused(self, path: str, headers: Headers) -> Failure | None:
        host = headers.get("host", "")
        # A page of another site that has its name resolve to this machine must not be answered.
        if self._hosts is not None and _name_of(host) not in self._hosts:
            return failure(400, f"this server is not called {host!r}. Use one of: {', '.join(sorted(self._hosts))}.")
        is_guarded = path.startswith("/api/") or path == _REPORT
        if not self._token or not is_guarded or self._has_token(headers):
            return None
        if path == _REPORT and self._has_pass(headers):
            return None
        return failure(401, "this server wants its token. Send: Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")

    async def _body(self, headers: Headers, receive: Receive) -> bytes | Failure:
        """All of it, so that no half of a request is ever worked on."""
        too_large = failure(
            413, f"the request has more than {self._limits.body_bytes:,} bytes, which is the limit. Send less at once."
        )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.body_bytes:
            return too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits.body_bytes:
                        return too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return failure(
                408, f"the request was not whole after {self._limits.body_seconds:g} seconds. Send it faster."
            )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the whole body first, then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replaying() -> Message:
        return messages.pop() if messages else await receive()

    return replaying


def _name_of(host: str) -> str | None:
    """A Host header's name, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def hosts_of(host: str) -> frozenset[str] | None:
    """By which names a server on `host` may be called; None: by any, since it is reached by many."""
    return None if host in ("0.0.0.0", "::") else frozenset({*_LOOPBACK, host.lower()})  # noqa: S104


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    return host in _LOOPBACK or host.startswith("127.")
