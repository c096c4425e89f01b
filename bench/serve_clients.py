"""What asks a server in bench/serve_load.py: connections that are as simple as can be, and hostile clients."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

HOSTILE_ADDRESS = "127.0.0.2"  # else honest clients would share their number of connections
JSON = "Content-Type: application/json\r\n"
SECONDS_TO_ANSWER = 60
#: Made once: while it makes them, a client would keep the others waiting.
LARGE_BODIES = (
    json.dumps({f"field {i}": i for i in range(40_000)}).encode(),
    json.dumps({"entity": [[1, 2]] * 100_000}).encode(),
    b" " * 10_000_000,
)


class Connection:
    """A connection of a client; just enough HTTP for a server that says how long its answers are."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port, self._source = port, source
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> "Connection":
        self._streams = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._source, 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()

    @property
    def writer(self) -> asyncio.StreamWriter:
        """Where to write what is no request."""
        assert self._streams is not None  # noqa: S101 - it was entered
        return self._streams[1]

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = JSON) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the answer."""
        assert self._streams is not None  # noqa: S101 - it was entered
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(SECONDS_TO_ANSWER):
            first, *others = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in others if line.startswith("content-length:"))
            return int(first.split()[1]), await reader.readexactly(length)


@dataclass
class Attacker:
    """A client that stalls, drops connections, and sends what is large or broken."""

    port: int
    entities: Sequence[str]
    relations: Sequence[str]
    number: int
    attacks: Counter[str] = field(default_factory=Counter)

    async def attack_forever(self) -> None:
        """Attack in one way after another, drawn at random, until it is cancelled."""
        draw = random.Random(-1 - self.number)  # noqa: S311 - no secret
        kinds: list[Callable[[random.Random], Awaitable[None]]] = [
            self._slow_headers,
            self._slow_body,
            self._large_names,
            self._dropped,
            self._broken,
            self._large_bodies,
            self._deaf,
        ]
        while True:
            attack = draw.choice(kinds)
            self.attacks[attack.__name__.strip("_")] += 1
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await attack(draw)
            await asyncio.sleep(0.1)

    def _connection(self) -> Connection:
        return Connection(self.port, HOSTILE_ADDRESS)

    async def _dribbled(self, connection: Connection, start: bytes, drip: bytes) -> None:
        """Send a little every half second, until the server has enough."""
        async with connection:
            connection.writer.write(start)
            for _ in range(40):
                connection.writer.write(drip)
                await connection.writer.drain()
                await asyncio.sleep(0.5)

    async def _slow_headers(self, _: random.Random) -> None:
        start = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
        slow = (self._dribbled(self._connection(), start, b"a") for _ in range(30))
        await asyncio.gather(*slow, return_exceptions=True)

    async def _slow_body(self, _: random.Random) -> None:
        start = f"POST /api/answer HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 500000\r\n\r\n".encode()
        slow = (self._dribbled(self._connection(), start, b" ") for _ in range(10))
        await asyncio.gather(*slow, return_exceptions=True)

    async def _large_names(self, _: random.Random) -> None:
        """A hundred names of 1,000 characters that are 18,000 once folded: 300 KB."""
        questions = [{"entity": "\ufdfa" * 1000, "relation": self.relations[0]}] * 100
        async with self._connection() as connection:
            await connection.ask(
                "POST", "/api/batch", json.dumps({"questions": questions}, ensure_ascii=False).encode()
            )
            await connection.ask("GET", f"/api/entities?q={'%EF%B7%BA' * 900}")

    async def _dropped(self, draw: random.Random) -> None:
        """Questions that nobody waits for."""
        for _ in range(20):
            question = {"entity": draw.choice(self.entities), "relation": draw.choice(self.relations)}
            body = json.dumps({"questions": [question] * 20}).encode()
            async with self._connection() as connection:
                head = f"POST /api/batch HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {len(body)}\r\n\r\n"
                connection.writer.write(head.encode() + body)
                await connection.writer.drain()
                await asyncio.sleep(draw.choice([0, 0.01, 0.1]))

    async def _broken(self, draw: random.Random) -> None:
        bodies = [b"{", b"[" * 100_000, b"\xff\xfe", b'{"entity": NaN}', b"null", draw.randbytes(1000)]
        for body in bodies:
            async with self._connection() as connection:
                await connection.ask("POST", "/api/answer", body)
        async with self._connection() as connection:
            await connection.ask("GARBAGE", "/\x00", draw.randbytes(100))

    async def _large_bodies(self, _: random.Random) -> None:
        for body in LARGE_BODIES:
            async with self._connection() as connection:
                await connection.ask("POST", "/api/answer", body)

    async def _deaf(self, _: random.Random) -> None:
        """Ask a hundred times, and read no answer."""
        body = json.dumps({"entity": self.entities[0], "relation": self.relations[0], "top": 1000}).encode()
        head = f"POST /api/answer HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {len(body)}\r\n\r\n".encode()
        async with self._connection() as connection:
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            connection.writer.write((head + body) * 100)
            await asyncio.sleep(20)
