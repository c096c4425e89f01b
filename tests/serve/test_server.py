"""The server as a process of its own: how it starts, what it logs, what it survives, how it ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn

from cascader.runs import Predictor
from cascader.serve import Limits
from cascader.serve import serve as serve_run
from cascader.serve import server as server_module
from cascader.serve.server import _bound
from tests.processes import Forked
from tests.serve.conftest import forked_server_of, server_of

QUESTION = {"entity": "red", "relation": "of"}
TOKEN = {"Authorization": "Bearer hush"}


def fetch(url, body=None, **headers):
    """The status and the JSON of an answer."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="module")
def server(plain_folder, log):
    """A server that wants a token, as a process and its address; the last test that uses it ends it."""
    with log.open("w") as errors, server_of(plain_folder, "--token", "hush", errors=errors) as server:
        yield server


@pytest.fixture
def address(server):
    return server[1]


@pytest.mark.slow
def test_every_request_is_a_line_of_json_without_the_token(address, log):
    assert fetch(f"{address}/api/health", Authorization="Bearer wrong")[0] == 401
    assert fetch(f"{address}/api/batch", {"questions": [QUESTION] * 3}, **TOKEN)[0] == 200
    while len(log.read_text().splitlines()) < 2:  # a line is written after its response was sent
        time.sleep(0.01)
    text = log.read_text()
    assert "hush" not in text
    first, second = (json.loads(line) for line in text.splitlines()[:2])
    assert set(first) == {"time", "method", "path", "status", "ms", "questions", "pairs_read"}
    assert (first["method"], first["path"], first["status"]) == ("GET", "/api/health", 401)
    assert (second["path"], second["status"], second["questions"]) == ("/api/batch", 200, 3)


def begun(address, count):
    """Connections with requests that have only begun: in their headers, or in their bodies."""
    host, port = address.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(count)]
    for number, connection in enumerate(connections):
        line = b"POST /api/answer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\n"
        whole = line + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        connection.sendall(whole if number % 2 else line)
        connection.setblocking(False)
    return connections


@pytest.mark.slow
def test_a_slow_client_keeps_nobody_waiting(address):
    slow = begun(address, 20)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: fetch(f"{address}/api/answer", QUESTION, **TOKEN)[0], range(40)))
    assert answers == [200] * 40
    for connection in slow:
        with pytest.raises(BlockingIOError):  # the server is still waiting for the rest
            connection.recv(1)
        connection.close()


def ended_in_time(process):
    """Send SIGTERM: whether the server has ended well within five seconds, and half a second for this machine."""
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=30) == 0 and time.monotonic() - told < 5.5


@pytest.mark.slow
def test_told_to_end_it_waits_for_slow_clients_only_so_long(server):
    process, address = server
    slow = begun(address, 2)
    assert ended_in_time(process)
    for connection in slow:
        connection.close()


@pytest.mark.slow
def test_interrupted_it_ends_well_and_interrupted_again_at_once(plain_folder):
    with forked_server_of(plain_folder) as (process, address):
        assert fetch(f"{address}/api/answer", QUESTION)[0] == 200
        slow = begun(address, 2)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # it gives the slow clients some seconds
            process.wait(timeout=0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        for connection in slow:
            connection.close()


def serve_without_an_answer(folder):
    """Serve a run whose first answer is never ready."""

    def ready(address):
        print(address, flush=True)  # noqa: T201
        Predictor.answer = lambda *given, **options: print("begun", flush=True) or threading.Event().wait()  # noqa: T201

    serve_run(folder, host="127.0.0.1", port=0, token="", ready=ready)


@pytest.mark.slow
def test_told_to_end_it_ends_whatever_is_being_computed_and_says_so_to_all_who_wait(plain_folder):
    """It waited for the models forever."""
    with (
        Forked(serve_without_an_answer, plain_folder, errors=os.devnull) as process,
        ThreadPoolExecutor(8) as clients,
    ):
        try:
            address = process.stdout.readline().strip().rstrip("/")
            asked = [clients.submit(fetch, f"{address}/api/answer", QUESTION) for _ in range(8)]
            assert process.stdout.readline() == "begun\n"
            assert fetch(f"{address}/api/health")[0] == 200
            while "cascader_connections 9.0" not in urlopen(f"{address}/api/metrics", timeout=60).read().decode():
                time.sleep(0.01)
            assert ended_in_time(process)
        finally:
            process.kill()
        for status, body in (each.result() for each in asked):
            assert status == 503
            assert "shutting down" in body["error"]


#: Python kills threads that are still there when it ends, wherever they are: C++ takes that for an error, and aborts.
LONG = """
import sys, threading, time, torch
from pathlib import Path
from cascader.runs import Predictor
from cascader.serve import serve

def busy():
    end = time.monotonic() + 3.6
    with torch.inference_mode():
        while time.monotonic() < end:
            torch.ones(300, 300) @ torch.ones(300, 300)

def ready(address):
    print(address, flush=True)
    Predictor.answer = lambda *given, **options: print("begun", flush=True) or busy()

serve(Path(sys.argv[1]), host="127.0.0.1", port=0, token="", ready=ready)
"""


@pytest.mark.slow
def test_told_to_end_it_does_not_abort_while_something_is_still_computed(plain_folder):
    """It ended after three seconds, with the signal SIGABRT, and "terminate called without an active exception"."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", LONG, plain_folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        ThreadPoolExecutor(1) as client,
    ):
        try:
            address = process.stdout.readline().strip().rstrip("/")
            client.submit(fetch, f"{address}/api/answer", QUESTION)
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            assert "terminate called" not in process.stderr.read()
        finally:
            process.kill()


def test_once_it_has_ended_the_process_is_the_callers_again(plain_folder, monkeypatch):
    """The watch over its end went on, and ended whatever a caller did five seconds later."""
    monkeypatch.setattr(server_module, "_log_requests", lambda: None)
    monkeypatch.setattr(server_module, "_keep_others_from_waiting", lambda: None)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: setattr(self, "should_exit", True))
    serve_run(plain_folder, host="127.0.0.1", port=0, token="", ready=lambda _: None)
    assert not [thread.name for thread in threading.enumerate() if "_end_in_time" in thread.name]


def test_small_answers_are_sent_at_once():
    """Without TCP_NODELAY, each would wait for a delayed acknowledgement."""

    async def accepted_socket_option(listener):
        found = asyncio.get_running_loop().create_future()

        class Accept(asyncio.Protocol):
            def connection_made(self, transport):
                accepted = transport.get_extra_info("socket")
                found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        async with await asyncio.get_running_loop().create_server(Accept, sock=listener):
            with socket.create_connection(listener.getsockname()):
                return await found

    with _bound("127.0.0.1", 0) as listener:
        assert asyncio.run(accepted_socket_option(listener)) == 1


@pytest.mark.slow
def test_it_goes_on_when_the_run_is_removed(words_folder, tmp_path):
    folder = shutil.copytree(words_folder, tmp_path / "words")
    with forked_server_of(folder) as (process, address):
        assert fetch(f"{address}/api/answer", QUESTION)[0] == 200
        shutil.rmtree(folder)
        for entity in (f"e{i}" for i in range(16)):
            status, found = fetch(f"{address}/api/answer", {"entity": entity, "relation": "of"})
            assert status == 200, found
        assert fetch(f"{address}/api/answer", {"new": {"name": "pink"}, "relation": "of"})[0] == 200
        assert fetch(f"{address}/api/classify", {"triples": [["red", "of", "sea"]]})[0] == 200
        assert fetch(f"{address}/api/graph")[1]["has_report"] is False
        assert fetch(f"{address}/report")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert not folder.exists()


def serve(run, *arguments):
    code, _, err = run("serve", *arguments)
    return code, err


def test_a_port_that_is_in_use_is_said_at_once(run, plain_folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = serve(run, plain_folder, "--port", port)
    assert code == 2
    assert f"port {port} of 127.0.0.1 is in use. Choose another with --port" in err


def test_other_machines_need_a_token(run, plain_folder):
    code, err = serve(run, plain_folder, "--host", "0.0.0.0")
    assert code == 2
    assert "other machines can reach 0.0.0.0" in err
    assert "--token" in err


def test_a_name_is_no_address_of_this_machine_because_of_how_it_begins(run, plain_folder, monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    code, err = serve(run, plain_folder, "--host", "127.evil.example", "--port", 0)
    assert code == 2
    assert "other machines can reach 127.evil.example" in err


@pytest.mark.parametrize("token", [" ", "secret ", "sec\nret"])
def test_a_token_that_no_header_can_have_is_refused(run, plain_folder, token):
    code, err = serve(run, plain_folder, "--token", token)
    assert code == 2
    assert "the token has spaces around it" in err


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("second=60", "there is no limit 'second'. Did you mean 'seconds'? The limits are: body_bytes, seconds,"),
        ("seconds", "--limit 'seconds' has no value that is a number. Write it as seconds=NUMBER."),
        ("waiting=1.5", "--limit 'waiting=1.5' has no value that is a whole number. Write it as waiting=NUMBER."),
        ("waiting=\u0663", "has no value that is a whole number. Write it as waiting=NUMBER."),
        ("waiting=0", "the limit waiting is 0, expected a number above 0."),
        ("seconds=nan", "the limit seconds is nan, expected a number above 0."),
        ("seconds=inf", "the limit seconds is inf, expected a number above 0."),
    ],
)
def test_a_limit_that_is_none_is_refused_with_what_it_may_be(run, plain_folder, limit, said):
    code, err = serve(run, plain_folder, "--port", 0, "--limit", limit)
    assert code == 2
    assert said in err


def test_limits_are_those_of_the_command_line(run, plain_folder, monkeypatch):
    given = {}
    monkeypatch.setattr("cascader.serve.serve", lambda _, **options: given.update(options))
    assert serve(run, plain_folder, "--limit", "seconds=60", "--limit", "waiting=5") == (0, "")
    assert given["limits"] == Limits(seconds=60.0, waiting=5)


def test_an_address_that_is_none_is_an_error_in_one_sentence(run, plain_folder):
    code, err = serve(run, plain_folder, "--host", "no such host", "--token", "x")
    assert code == 2
    assert err.startswith("error: 'no such host' and port 8000 are not a valid address")


def test_a_folder_without_a_run_is_an_error_in_one_sentence(run, tmp_path):
    code, err = serve(run, tmp_path, "--port", 0)
    assert code == 2
    assert "holds no complete run" in err


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "prometheus_client"])
def test_without_the_extra_it_says_how_to_install_it(run, plain_folder, monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith("cascader.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, err = serve(run, plain_folder)
    assert code == 2
    assert 'pip install "cascader[serve]"' in err
