"""Connections: how many may be open, of one client and of all, and how long one may take to ask and to listen."""

import asyncio
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from cascader.serve.schemas import Limits

#: The keys of what an application hands to its connections, and a connection to its requests, in their state.
CONNECTIONS, CONNECTION = "connections", "connection"
#: Connections that stay open for a second to hear that they came too many; more than that are closed in silence.
LINGERING = 64
_LINGER_SECONDS = 1.0
_REASON = b'{"error":"too many connections are open. Try again in a second.","suggestions":[]}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_REASON), _REASON)
)


class Connections:
    """The open connections: how many each client has, and which ones ask nothing, oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.idle: dict[Connection, None] = {}
        self.lingering = 0
        self._clients: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._clients.total()

    def admit(self, client: str) -> bool:
        """Count one more of a client, unless that is too many; if all places are taken, an idle one loses its own."""
        if self._clients[client] >= self.limits.client_connections or not self._has_room():
            return False
        self._clients[client] += 1
        return True

    def _has_room(self) -> bool:
        if len(self) < self.limits.connections:
            return True
        oldest = next((each for each in self.idle if each.transport.get_write_buffer_size() == 0), None)
        if oldest is not None:
            oldest.transport.abort()
        return oldest is not None

    def forget(self, client: str) -> None:
        """Count one less of a client."""
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]


class Connection(H11Protocol):
    """A connection as uvicorn handles it, ended if a request or its answer takes too long to pass.

    uvicorn itself waits for the headers of a request, and for a client to take its answer, forever.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self}, _loop)
        self._all: Connections = app_state[CONNECTIONS]
        self._from, self._is_admitted, self._requests = "", False, 0
        self._is_asking = True  # the headers of a request are awaited, and have only so long
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a client, or send it away."""
        super().connection_made(transport)
        self._from = self._counted_for(transport)
        self._is_admitted = self._all.admit(self._from)
        if self._is_admitted:
            self._wait(self._all.limits.header_seconds)
        else:
            self._refuse()

    @staticmethod
    def _counted_for(transport: asyncio.Transport) -> str:
        """The client that has this connection: an IPv4 address, or the network of an IPv6 address, which one has."""
        address = ip_address(str(transport.get_extra_info("peername")[0]).partition("%")[0])
        return str(address if address.version == 4 else ip_network((address, 64), strict=False))

    def data_received(self, data: bytes) -> None:
        """Read what an admitted client sends; the first bytes of a request give its headers their time."""
        if not self._is_admitted:
            return
        if not self._requests and not self._is_asking:
            self._is_asking = True
            self._wait(self._all.limits.header_seconds)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place free."""
        self._wait_no_longer()
        if self._is_admitted:
            self._all.forget(self._from)
        elif self._timer is not None:
            self._all.lingering -= 1
        super().connection_lost(exc)

    def begin(self) -> None:
        """A request has arrived, all but its body."""
        self._requests += 1
        self._is_asking = False
        self._wait_no_longer()

    def end(self) -> None:
        """The answer to a request has been sent, and has yet to be taken; the next request may have begun already."""
        self._requests -= 1
        if not self._requests and not self.transport.is_closing():
            self._wait(self._all.limits.seconds)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._all.idle[self] = None
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _wait_no_longer(self) -> None:
        self._all.idle.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _refuse(self) -> None:
        if self._all.lingering >= LINGERING:
            self.transport.abort()
            return
        self._all.lingering += 1
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
        self.transport.write(_REFUSAL)
        self.transport.write_eof()


class ConnectionMiddleware:
    """Tells a connection when one of its requests begins and ends, and that its client is to take what is sent."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self._seconds = app, limits.seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is None:  # not a request, or another server than ours
            await self.app(scope, receive, send)
            return

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                connection.transport.abort()

        connection.begin()
        try:
            await self.app(scope, receive, send_in_time)
        finally:
            connection.end()
