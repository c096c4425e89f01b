"""A server under load for minutes: honest clients with fresh questions, and hostile ones among them.

A copy of the run is served by a process of its own, on this machine only. Nine in ten clients ask questions whose pairs
have to be read; the others stall, drop connections, and send what is large or broken, from an address of their own.
Somebody asks for its health every second. In the end the server is told to stop, with everyone still asking. Usage:
python bench/serve_load.py [--run RUN] [--clients N] [--minutes M]
"""

import argparse
import asyncio
import http.client
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cascader.runs import load_run
from measuring import report

HOSTILE_ADDRESS = "127.0.0.2"  # else honest clients would share their number of connections
HOSTILE_SHARE = 0.1
WARM_UP = 0.2  # of the time
BARS = {"health_p99_ms": 100.0, "memory_growth": 0.02, "seconds_to_end": 5.0}
JSON = "Content-Type: application/json\r\n"
SECONDS_TO_ANSWER = 60
#: Made once: while it makes them, a client would keep the others waiting.
LARGE_BODIES = (
    json.dumps({f"field {i}": i for i in range(40_000)}).encode(),
    json.dumps({"entity": [[1, 2]] * 100_000}).encode(),
    b" " * 10_000_000,
)


def main() -> None:
    """Serve, ask, and report what the clients saw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    kg = load_run(arguments.run).kg
    things = [entity.id for entity in kg.entities], [relation.id for relation in kg.relations]
    with tempfile.TemporaryDirectory() as folder, _server(arguments.run, Path(folder)) as (process, port):
        load = Load(port, process, *things, end=time.monotonic() + 60 * arguments.minutes)
        found = asyncio.run(load.measured(arguments.clients))
    details = {
        "what": f"{arguments.clients} clients of {arguments.run} for {arguments.minutes:g} minutes, "
        f"{found.pop('hostile_clients')} of them hostile; no question was asked before",
        **found,
        "bars": BARS,
        "is_met": _is_met(found),
    }
    report("serve_load", {}, details, ["torch", "fastapi", "starlette", "uvicorn"])
    print(json.dumps(details, indent=1))


def _is_met(found: dict[str, Any]) -> dict[str, bool]:
    return {
        "honest_clients_saw_503_only": not found["honest"]["errors"],
        "health_p99_ms": not found["health"]["errors"] and found["health"]["p99_ms"] < BARS["health_p99_ms"],
        "memory_growth": found["memory"]["growth"] < BARS["memory_growth"],
        "seconds_to_end": found["seconds_to_end"] < BARS["seconds_to_end"],
    }


@contextmanager
def _server(run: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a copy of the run, whose scores the next measurement must not find."""
    shutil.copytree(run, folder / "run")
    command = [sys.executable, "-m", "cascader", "serve", str(folder / "run"), "--port", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            line = process.stdout.readline().strip()
            if not line:
                raise SystemExit(f"the server did not start. See: {' '.join(command)}")
            yield process, int(line.rstrip("/").rsplit(":", 1)[1])
        finally:
            process.kill()
            process.wait()


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
class Load:
    """Clients of one server, and what they saw until the end."""

    port: int
    process: subprocess.Popen[str]
    entities: Sequence[str]
    relations: Sequence[str]
    end: float
    seconds: list[float] = field(default_factory=list)  # of each answer
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    health: list[float] = field(default_factory=list)
    health_errors: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)  # MB, every second
    attacks: Counter[str] = field(default_factory=Counter)
    is_ending: bool = False

    async def measured(self, clients: int) -> dict[str, Any]:
        """Let them all ask, tell the server to end while they do, and sum up."""
        hostile, started = max(1, round(HOSTILE_SHARE * clients)), time.monotonic()
        tasks = [asyncio.create_task(self._honest(number)) for number in range(clients - hostile)]
        tasks += [asyncio.create_task(self._hostile(number)) for number in range(hostile)]
        tasks.append(asyncio.create_task(asyncio.to_thread(self._watch)))
        await asyncio.sleep(self.end - time.monotonic())
        seconds, said = time.monotonic() - started, await self._metrics()
        seconds_to_end = await self._ended()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        warm, counted = self.memory[int(WARM_UP * len(self.memory)) :], max(1, len(self.memory) // 10)
        before, after = float(np.median(warm[:counted])), float(np.median(warm[-counted:]))
        return {
            "hostile_clients": hostile,
            "honest": {
                "answers_a_second": round(self.statuses[200] / seconds, 1),
                "statuses": dict(self.statuses),
                "errors": dict(self.errors),
                **_percentiles(self.seconds),
            },
            "hostile": dict(self.attacks),
            "health": {"asked": len(self.health), "errors": dict(self.health_errors), **_percentiles(self.health)},
            "memory": {"after_warm_up_mb": before, "at_the_end_mb": after, "growth": round(after / before - 1, 4)},
            "seconds_to_end": round(seconds_to_end, 2),
            "the_server_says": said,
        }

    async def _metrics(self) -> dict[str, float]:
        async with Connection(self.port) as connection:
            _, body = await connection.ask("GET", "/api/metrics")
        lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
        kept = (
            "cascader_request_seconds{",
            "cascader_questions",
            "cascader_pairs",
            "cascader_conn",
            "process_resident",
        )
        values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
        return {name: value for name, value in values.items() if name.startswith(kept)}

    async def _ended(self) -> float:
        self.is_ending, told = True, time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        while self.process.poll() is None and time.monotonic() < told + 60:
            await asyncio.sleep(0.01)
        return time.monotonic() - told

    # Honest clients.

    async def _honest(self, number: int) -> None:
        draw = random.Random(number)  # noqa: S311 - no secret
        while not self.is_ending:
            try:
                async with Connection(self.port) as connection:
                    for _ in range(20):  # over one connection, as browsers do
                        await self._question(connection, draw)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self._failed(self.errors, error)
                await asyncio.sleep(0.1)

    async def _question(self, connection: Connection, draw: random.Random) -> None:
        side, started = draw.choice(["head", "tail"]), time.monotonic()
        body = {"entity": draw.choice(self.entities), "relation": draw.choice(self.relations), "side": side}
        status, content = await connection.ask("POST", "/api/answer", json.dumps(body).encode())
        if self.is_ending:
            return
        self.statuses[status] += 1
        if status == 200:
            self.seconds.append(time.monotonic() - started)
        elif status == 503:
            await asyncio.sleep(1)  # as Retry-After says
        else:
            self.errors[f"{status}: {content[:200]!r}"] += 1

    def _failed(self, errors: Counter[str], error: Exception) -> None:
        if not self.is_ending:
            errors[f"{type(error).__name__}: {error}"[:200]] += 1

    def _watch(self) -> None:
        """Ask for health, and look at the memory, every second; in a thread, which the clients do not keep waiting."""
        while not self.is_ending:
            started = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_TO_ANSWER)
                connection.request("GET", "/api/health")
                response = connection.getresponse()
                response.read()
                self.health.append(time.monotonic() - started)
                if response.status != 200:
                    self.health_errors[str(response.status)] += 1
                connection.close()
                self.memory.append(_resident_megabytes(self.process.pid))
            except (OSError, http.client.HTTPException) as error:
                self._failed(self.health_errors, error)
            time.sleep(max(0.0, 1 - (time.monotonic() - started)))

    # Hostile clients.

    async def _hostile(self, number: int) -> None:
        draw = random.Random(-1 - number)  # noqa: S311 - no secret
        kinds: list[Callable[[random.Random], Awaitable[None]]] = [
            self._slow_headers,
            self._slow_body,
            self._large_names,
            self._dropped,
            self._broken,
            self._large_bodies,
            self._deaf,
        ]
        while not self.is_ending:
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


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"p50_ms": float("inf"), "p95_ms": float("inf"), "p99_ms": float("inf")}
    p50, p95, p99 = np.percentile(1000 * np.array(seconds), [50, 95, 99]).round(1).tolist()
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def _resident_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
