"""Requests to the server: what its own description allows and forbids (schemathesis), and bytes that are no HTTP."""

import asyncio
import json
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import schemathesis
import uvicorn
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cascader.runs import load_run
from cascader.serve import create_app
from cascader.serve.connections import Connection
from cascader.serve.schemas import Limits
from tests.fuzz.case import Case, UnexpectedError
from tests.fuzz.documents import values
from tests.fuzz.material import Material
from tests.fuzz.mutations import damaged, damages, hostile_texts, texts

_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_LIMITS = Limits(header_seconds=0.3, body_seconds=0.3, seconds=10)
#: How long a client waits for a reply; one whose request is not whole gets none.
_PATIENCE_SECONDS = 1.5
_PATHS = (
    "/",
    "/api/health",
    "/api/graph",
    "/api/entities",
    "/api/entity",
    "/api/answer",
    "/api/batch",
    "/api/classify",
)
_PATHS += ("/api/metrics", "/api/review", "/api/review/link", "/api/review/decide", "/api/review/undo")
_PATHS += ("/api/review/renew", "/api/review/export")
_PATHS += ("/report", "/openapi.json", "/page/app.js", "/page/../app.py", "/page/%2e%2e/app.py", "//", "*", "/api")
_BODIES = (
    {"entity": "e0", "relation": "of"},
    {"entity": "red", "relation": "like", "side": "head", "top": 3, "with_known": True, "why": True},
    {"relation": "of", "new": {"name": "crimson", "description": "something red"}},
    {"entity": "e0", "relation": "of", "budget": {"pairs": 5, "seconds": 1}},
    {"questions": [{"entity": "e0", "relation": "of"}, {"entity": "nobody", "relation": "of"}]},
    {"triples": [["e0", "of", "e8"], ["nobody", "of", "e8"]]},
    {"head": "e0", "relation": "of", "tail": "e8", "decision": "accepted", "reviewer": "ann"},
    {"reviewer": "ann"},
)
_FIELDS = ("entity", "top", "side", "budget", "reviewer", "decision")


class _LocalConnection(Connection):
    """A connection by a socket of the file system, whose client has no address."""

    @staticmethod
    def _counted_for(transport: asyncio.Transport) -> str:
        return "127.0.0.1"


class _Served:
    """The run, served at a socket of the file system, so that no packet is sent."""

    def __init__(self, material: Material) -> None:
        self.folder = Path(os.environ["CASCADER_CACHE"])
        self.socket = str(self.folder / "http")
        run = load_run(material.copy_run(self.folder / "served"))
        self.app = create_app(run, limits=_LIMITS)
        self.errors: list[str] = []
        _keep_errors(self.errors)
        config = uvicorn.Config(self.app, http=_LocalConnection, uds=self.socket, log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        threading.Thread(target=self._server.run, daemon=True).start()
        while not self._server.started:
            time.sleep(0.02)
        self.schema = schemathesis.openapi.from_dict(self.app.openapi())
        self.schema.app = create_app(run, limits=_LIMITS)

    def reply(self, request: bytes) -> bytes:
        """What the server replies to some bytes, until it closes the connection or keeps silent."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PATIENCE_SECONDS)
            client.connect(self.socket)
            try:
                client.sendall(request)
                reply = b""
                while not _is_whole(reply) and (chunk := client.recv(1 << 16)):
                    reply += chunk
            except (TimeoutError, ConnectionError, BrokenPipeError):
                pass
            return reply


def _is_whole(reply: bytes) -> bool:
    """Whether a reply has all of the body that it announces."""
    head, end, body = reply.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and bool(lengths) and len(body) >= int(lengths[0].split(b":")[1])


def _keep_errors(errors: list[str]) -> None:
    """Keep the tracebacks that the server logs, for those who ask what went wrong."""

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if '"error"' in record.getMessage():
                errors[:] = [json.loads(record.getMessage())["error"]]

    log = logging.getLogger("cascader.serve.requests")
    log.handlers, log.propagate = [Keeping()], False
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


@cache
def _served(material: Path) -> _Served:
    return _Served(Material(material))


@dataclass(frozen=True)
class Described:
    """A request that schemathesis made from the server's description of itself."""

    served: _Served
    request: schemathesis.Case

    def __str__(self) -> str:
        return f"{self.request.as_curl_command()}"[:5000]

    def prepare(self, folder: Path) -> None:
        """Write the request down."""
        (folder / "request.sh").write_text(str(self), errors="backslashreplace")

    def perform(self, folder: Path) -> str:
        """Send it, and check the reply against the description."""
        self.served.errors.clear()
        response = self.request.call(base_url="http://localhost", headers={"Host": "localhost"})
        if response.status_code >= 500 and response.status_code != 503:
            raise UnexpectedError(f"{response.status_code}: {''.join(self.served.errors)[-3000:]}")
        self.request.validate_response(response, checks=_CHECKS)
        return "" if response.status_code < 400 else _sentence(response.content)


@dataclass(frozen=True)
class Raw:
    """Bytes sent to the server."""

    served: _Served
    content: bytes

    def __str__(self) -> str:
        return f"the bytes {self.content[:2000]!r}"

    def prepare(self, folder: Path) -> None:
        """Write the bytes down."""
        (folder / "request.bin").write_bytes(self.content)

    def perform(self, folder: Path) -> str:
        """Send them; whatever they were, the server must answer the next who asks."""
        self.served.errors.clear()
        reply = self.served.reply(self.content)
        health = self.served.reply(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if b" 200 OK" not in health[:20]:
            raise UnexpectedError(f"the server is not well any more: {health[:200]!r}")
        if not reply:
            return "no reply, because the request is not whole"
        status = int(reply.split(b" ", 2)[1])
        if status >= 500 and status != 503:
            raise UnexpectedError(f"{status}: {''.join(self.served.errors)[-3000:]}")
        body = reply.partition(b"\r\n\r\n")[2]
        if self.content.startswith(b"HEAD ") and not body:
            return f"a status without a body: {status}" if status >= 400 else ""
        return "" if status < 400 else _sentence(body)


#: What uvicorn says of what is no HTTP, and Starlette of another host's name and of ranges: in plain text.
_PLAIN = (b"Invalid HTTP request received.", b"Invalid host header", b"Malformed range header.")


def _sentence(body: bytes) -> str:
    """The error that a reply tells."""
    if body in _PLAIN:
        return body.decode()
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError) as problem:
        raise UnexpectedError(f"the reply is no JSON with an error: {body[:500]!r}") from problem
    return str(error)


def cases(material: Material) -> st.SearchStrategy[Case]:
    """Draw a request from the description, or make up its bytes."""
    served = _served(material.folder)
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    described = st.one_of([served.schema.as_strategy(generation_mode=mode) for mode in modes])
    return st.one_of(st.builds(Described, st.just(served), described), st.builds(Raw, st.just(served), _bytes()))


@st.composite
def _bytes(draw: st.DrawFn) -> bytes:
    """A request whose parts are hostile here and there, and damaged on the way now and then."""
    body = b""
    if draw(st.booleans()):
        document = draw(st.sampled_from(_BODIES))
        document = {
            **document,
            **draw(st.dictionaries(st.sampled_from(_FIELDS), values(), max_size=1)),
        }
        body = draw(st.sampled_from([json.dumps(document).encode(), b"", b"[" * 5000, b"\xff", b"nul", b'{"a":NaN}']))
    method = draw(st.sampled_from(["GET", "POST", "POST", "HEAD", "OPTIONS", "PUT", "TRACE", "get", "\u00e9"]))
    path = draw(st.sampled_from(_PATHS)) + draw(st.one_of(st.just(""), _queries()))
    headers = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    for name in draw(
        st.lists(st.sampled_from([*headers, "Authorization", "Cookie", "Expect", "X-A", "Range"]), max_size=2)
    ):
        headers[name] = draw(texts().map(lambda text: text[:3000].replace("\r", "").replace("\n", "")))
    headers["Connection"] = "close"
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    whole = "\r\n".join(lines).encode(errors="replace") + body
    return damaged(whole, draw(damages(1))) if draw(st.integers(0, 3)) == 0 else whole


def _queries() -> st.SearchStrategy[str]:
    value = st.one_of(
        st.sampled_from(["e0", "red", "%00", "%ff", "%e2%80%ae", "a" * 2000]),
        hostile_texts().map(lambda text: text[:2000]),
    )
    plain = value.map(lambda text: text.replace(" ", "%20").replace("\r", "").replace("\n", ""))
    return st.builds("?{}={}".format, st.sampled_from(["q", "id", "limit", "nope"]), plain)
