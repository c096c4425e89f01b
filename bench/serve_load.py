"""A server under load for minutes: honest clients with fresh questions, and hostile ones among them.

A copy of the run is served by a process of its own, on this machine only. Nine in ten clients ask questions whose pairs
have to be read; the others stall, drop connections, and send what is large or broken, from an address of their own. A
third process asks for health every second. In the end the server is told to stop, with everyone still asking. The exit
code is 1 if a bar is missed. Usage: python bench/serve_load.py [--run RUN] [--clients N] [--minutes M]
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np

from cascader.runs import load_run
from measuring import report
from serve_clients import SECONDS_TO_ANSWER, Attacker, Connection

HOSTILE_SHARE = 0.1
WARM_UP = 0.2  # of the time
BARS = {"health_p99_ms": 100.0, "memory_growth": 0.02, "seconds_to_end": 5.0}


def main() -> int:
    """Serve, ask, and report what the clients saw; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    kg = load_run(arguments.run).kg
    things = [entity.id for entity in kg.entities], [relation.id for relation in kg.relations]
    with tempfile.TemporaryDirectory() as folder:
        with _server(arguments.run, Path(folder)) as (process, port):
            load = Load(port, process, *things, end=time.monotonic() + 60 * arguments.minutes)
            found = asyncio.run(load.measured(arguments.clients))
        found["errors_in_the_log"] = _errors_in(Path(folder) / "log")
    is_met = _is_met(found)
    details = {
        "what": f"{arguments.clients} clients of {arguments.run} for {arguments.minutes:g} minutes, "
        f"{found.pop('hostile_clients')} of them hostile; no question was asked before",
        "omp_num_threads": _threads(),
        **found,
        "bars": BARS,
        "is_met": is_met,
    }
    report("serve_load", {}, details, ["torch", "fastapi", "starlette", "uvicorn"])
    print(json.dumps(details, indent=1))
    return int(not all(is_met.values()))


#: What a server says that is no error: how far it has come with what it needs, and that a request was no HTTP.
_TOLD = re.compile(r"note: |[a-z ]+: [\d,]+ of [\d,]+ ")


def _threads() -> str:
    """How many threads the server computes with: one, unless the environment says otherwise."""
    return os.environ.get("OMP_NUM_THREADS", "1")


def _errors_in(log: Path) -> list[str]:
    """The lines of the server that are part of a traceback, or a request that failed though it was not busy."""
    return [line[:300] for line in log.read_text(encoding="utf-8").splitlines() if line and not _is_fine(line)]


def _is_fine(line: str) -> bool:
    if _TOLD.match(line):
        return True
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return "error" not in said and (said["status"] < 500 or said["status"] == 503)


def _is_met(found: dict[str, Any]) -> dict[str, bool]:
    return {
        "honest_clients_saw_503_only": not found["honest"]["errors"],
        "health_p99_ms": not found["health"]["errors"] and found["health"]["p99_ms"] < BARS["health_p99_ms"],
        "memory_growth": found["memory"]["growth"] < BARS["memory_growth"],
        "seconds_to_end": found["seconds_to_end"] < BARS["seconds_to_end"],
        "pairs_were_read": found["the_server_says"].get("cascader_pairs_read_total", 0) > 0,
        "no_errors_in_the_log": not found["errors_in_the_log"],
    }


@contextmanager
def _server(run: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a copy of the run, whose scores the next measurement must not find."""
    shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("scores"))
    command = [sys.executable, "-m", "cascader", "serve", str(folder / "run"), "--port", "0"]
    with (folder / "log").open("w") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": _threads()}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            line = process.stdout.readline().strip()
            if not line:
                raise SystemExit(f"the server did not start. See: {' '.join(command)}")
            yield process, int(line.rstrip("/").rsplit(":", 1)[1])
        finally:
            process.kill()
            process.wait()


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
    is_ending: bool = False

    async def measured(self, clients: int) -> dict[str, Any]:
        """Let them all ask, tell the server to end while they do, and sum up."""
        hostile, started = max(1, round(HOSTILE_SHARE * clients)), time.monotonic()
        tasks = [asyncio.create_task(self._honest(number)) for number in range(clients - hostile)]
        attackers = [Attacker(self.port, self.entities, self.relations, number) for number in range(hostile)]
        tasks += [asyncio.create_task(attacker.attack_forever()) for attacker in attackers]
        with _watching(self.port, self.process.pid) as watcher:
            await asyncio.sleep(self.end - time.monotonic())
            seconds, said = time.monotonic() - started, await self._metrics()
            watcher.send(None)
            watched: Watched = await asyncio.to_thread(watcher.recv)
        seconds_to_end = await self._ended()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        memory = watched.memory
        warm, counted = memory[int(WARM_UP * len(memory)) :], max(1, len(memory) // 10)
        before, after = float(np.median(warm[:counted])), float(np.median(warm[-counted:]))
        return {
            "hostile_clients": hostile,
            "honest": {
                "answers_a_second": round(self.statuses[200] / seconds, 1),
                "statuses": dict(self.statuses),
                "errors": dict(self.errors),
                **_percentiles(self.seconds),
            },
            "hostile": dict(sum((attacker.attacks for attacker in attackers), Counter())),
            "health": {
                "asked": len(watched.seconds),
                "errors": dict(watched.errors),
                **_percentiles(watched.seconds),
            },
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
                if not self.is_ending:
                    self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
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


@dataclass
class Watched:
    """What somebody saw who asked for health every second."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)  # MB


@contextmanager
def _watching(port: int, server: int) -> Iterator[Pipe]:
    """Watch a server from a process of its own: a thread of ours would wait for the clients, who share it with us."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_watch, args=(port, server, theirs), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _watch(port: int, server: int, told: Pipe) -> None:
    """Ask for health, and look at the memory, every second until told to end; then send what was seen."""
    watched, took = Watched(), 1.0
    while not told.poll(max(0.0, 1 - took)):
        started = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_TO_ANSWER)
            connection.request("GET", "/api/health")
            response = connection.getresponse()
            response.read()
            watched.seconds.append(time.monotonic() - started)
            if response.status != 200:
                watched.errors[str(response.status)] += 1
            connection.close()
            watched.memory.append(_resident_megabytes(server))
        except (OSError, http.client.HTTPException) as error:
            watched.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        took = time.monotonic() - started
    told.send(watched)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"p50_ms": float("inf"), "p95_ms": float("inf"), "p99_ms": float("inf")}
    p50, p95, p99 = np.percentile(1000 * np.array(seconds), [50, 95, 99]).round(1).tolist()
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def _resident_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    sys.exit(main())
