"""How fast a served run answers several clients at once, compared with the same server without batching.

Both are real servers in their own processes, asked the same questions over HTTP by the same clients; the peer answers
one question at a time. All pairs are in the store before anything is measured. Usage:
python bench/serve.py [--run RUN] [--requests N] [--clients N]
"""

import argparse
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cascader.graph import Queries
from cascader.runs import load_run
from cascader.serve import Batching, serve
from measuring import report

QUESTIONS = 250
GOAL_MS = 150
#: The batching of each server, by name.
SERVERS = {"batched": Batching(), "one_at_a_time": Batching(window_seconds=0.0, most=1)}


def main() -> None:
    """Measure both servers with a budget of no pairs and with a medium one, and report the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--serve", choices=SERVERS, help="run one of the servers")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.run, host="127.0.0.1", port=0, token="", ready=_say, batching=SERVERS[arguments.serve])
        return
    questions = _questions(arguments.run)
    found = {name: _measured(name, questions, arguments) for name in SERVERS}
    budgets = list(found["batched"]["budgets"])
    ratios = {
        f"requests_a_second_batched_vs_one_at_a_time_{budget}": found["batched"]["budgets"][budget]["requests_a_second"]
        / found["one_at_a_time"]["budgets"][budget]["requests_a_second"]
        for budget in budgets
    }
    slowest = max(found["batched"]["budgets"][budget]["p95_ms"] for budget in budgets)
    details = {
        "what": f"{arguments.requests} requests of {arguments.clients} clients to {arguments.run}, "
        f"{len(questions)} questions of test by turns, their pairs read before",
        **found,
        "goal": {"p95_ms": GOAL_MS, "is_met": slowest < GOAL_MS},
    }
    report("serve", ratios, details, ["torch", "fastapi", "uvicorn"])
    print(f"p95 at most {slowest:.1f} ms, goal {GOAL_MS} ms")


def _say(address: str) -> None:
    print(address, flush=True)


def _questions(folder: Path) -> list[dict[str, Any]]:
    """Sample some test questions, always the same."""
    kg = load_run(folder).kg
    everything = Queries.from_triples(kg.test).unique()[0]
    places = np.random.default_rng(0).permutation(len(everything))[:QUESTIONS]
    chosen = everything[places]
    return [
        {"entity": kg.entities[anchor].id, "relation": kg.relations[relation].id, "side": side}
        for anchor, relation, side in zip(chosen.anchors, chosen.relations, chosen.sides, strict=True)
    ]


def _measured(name: str, questions: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one server with both budgets."""
    with _running(name, arguments.run) as (process, address):
        stops = _fetch(address, "GET", "/api/graph", None)["budgets"]
        budgets, figures = [stops[0]["pairs"], stops[len(stops) // 2]["pairs"]], {}
        for pairs in dict.fromkeys(budgets):
            asked = [{**question, "budget": {"pairs": pairs}} for question in questions]
            _ask(address, asked, arguments.clients, len(asked))  # reads missing pairs, and warms up
            before = _resident_megabytes(process.pid)
            figures[f"pairs_{pairs}"] = _ask(address, asked, arguments.clients, arguments.requests)
            after = _resident_megabytes(process.pid)
            figures[f"pairs_{pairs}"]["resident_megabytes"] = {"before": before, "after": after}
            print(name, f"pairs {pairs}", figures[f"pairs_{pairs}"])
    return {"budgets": figures}


@contextmanager
def _running(name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, __file__, "--serve", name, "--run", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            address = process.stdout.readline().strip().removeprefix("http://").rstrip("/")
            if not address:
                raise SystemExit(f"the server did not start. See: {' '.join(command)}")
            yield process, address
        finally:
            process.send_signal(signal.SIGTERM)


def _ask(address: str, asked: Sequence[dict[str, Any]], clients: int, requests: int) -> dict[str, Any]:
    """Let each client ask its share of the questions, one after another over one connection."""

    def client(number: int) -> list[float]:
        connection, times = http.client.HTTPConnection(address), []
        for place in range(number, requests, clients):
            started = time.perf_counter()
            _fetch(connection, "POST", "/api/answer", asked[place % len(asked)])
            times.append(time.perf_counter() - started)
        connection.close()
        return times

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        times = [seconds for some in threads.map(client, range(clients)) for seconds in some]
    seconds = time.perf_counter() - started
    p50, p95, p99 = np.percentile(1000 * np.array(times), [50, 95, 99]).round(2).tolist()
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "requests_a_second": round(len(times) / seconds, 1)}


def _fetch(to: http.client.HTTPConnection | str, method: str, path: str, body: dict[str, Any] | None) -> Any:
    connection = http.client.HTTPConnection(to) if isinstance(to, str) else to
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != http.client.OK:
        raise SystemExit(f"{path} answered {response.status}: {content[:500]!r}")
    return json.loads(content)


def _resident_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return round(kilobytes / 1024, 1)


if __name__ == "__main__":
    main()
