"""Connections to a server: how many, how long, and who keeps a place."""

import asyncio
import socket
from http.client import HTTPResponse

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from cascader.runs import load_run
from cascader.serve import Limits
from cascader.serve.connections import CONNECTIONS, LINGERING, Connection, Connections
from tests.serve.conftest import served

REQUEST = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def run(plain_folder):
    return load_run(plain_folder)


def connected(address, sent=b"", source="127.0.0.1"):
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))
    connection.sendall(sent)
    return connection


def heard(connection):
    """All that the server says until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    connection.close()
    return b"".join(parts)


def status(connection):
    """The status of one answer, on a connection that stays open."""
    with HTTPResponse(connection) as response:
        response.begin()
        response.read()
    return response.status


@pytest.mark.parametrize("sent", [b"", b"GET /api/he", REQUEST + b"X-Slow: a"])
def test_a_request_whose_headers_never_end_is_given_up(run, sent):
    with served(run, Limits(header_seconds=0.1)) as address:
        assert heard(connected(address, sent)) == b""


def test_the_next_request_of_a_connection_must_end_its_headers_too(run):
    with served(run, Limits(header_seconds=0.5)) as address:
        connection = connected(address, REQUEST + b"\r\n")
        assert status(connection) == 200
        connection.sendall(REQUEST)
        assert heard(connection) == b""


def test_the_headers_of_the_next_request_have_as_long_as_those_of_the_first():
    """From their first byte, and only once: a client that sends a byte now and then gains nothing."""

    async def dripping():
        loop, transport = asyncio.get_running_loop(), Transport()
        state = {CONNECTIONS: Connections(Limits(header_seconds=0.1, seconds=5))}
        connection = Connection(Config(lambda: None), ServerState(), state, loop)
        connection.connection_made(transport)
        connection.begin()
        connection.end()
        await asyncio.sleep(0.2)
        assert not transport.is_aborted  # it asks nothing
        started = loop.time()
        while not transport.is_aborted:
            connection.data_received(b"G")
            await asyncio.sleep(0.01)
        assert 0.09 < loop.time() - started < 2

    asyncio.run(dripping())


def test_who_does_not_take_its_answer_is_given_up(run):
    asking = b"GET /api/entities?limit=100&q= HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
    with served(run, Limits(seconds=0.5)) as address:
        host, port = address.removeprefix("http://").split(":")
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect((host, int(port)))
        connection.settimeout(30)
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(asking)  # and never reads
        connection.close()


class Transport:
    """A transport that only notes whether it was aborted."""

    is_aborted = False

    def abort(self):
        self.is_aborted = True

    def get_extra_info(self, name):
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self):
        return False


def test_a_request_that_begins_before_the_last_one_has_ended_is_not_given_up():
    """The next request can be there before the server is done with the last: it was cut off later on."""

    async def overlapping():
        config, limits = Config(lambda: None), Limits(header_seconds=0.05, seconds=0.05)
        state, transport = {CONNECTIONS: Connections(limits)}, Transport()
        connection = Connection(config, ServerState(), state, asyncio.get_running_loop())
        connection.connection_made(transport)
        connection.begin()
        connection.begin()
        connection.end()
        connection.end()
        connection.begin()
        await asyncio.sleep(0.2)
        assert not transport.is_aborted
        connection.end()
        await asyncio.sleep(0.2)
        assert transport.is_aborted

    asyncio.run(overlapping())


def test_a_client_has_only_so_many_connections_and_others_have_theirs(run):
    with served(run, Limits(client_connections=2)) as address:
        open_ones = [connected(address) for _ in range(2)]
        refused = heard(connected(address, REQUEST + b"\r\n"))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in refused
        assert b"too many connections are open" in refused
        other = connected(address, REQUEST + b"\r\n", source="127.0.0.2")
        assert status(other) == 200
        open_ones.pop().close()
        while not heard(connected(address, REQUEST + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 "):
            pass  # until the server has noticed that one is closed
        for connection in [*open_ones, other]:
            connection.close()


def test_when_all_places_are_taken_the_oldest_that_asks_nothing_loses_its_own(run):
    with served(run, Limits(connections=2)) as address:
        first, second = connected(address, b"GET "), connected(address, REQUEST + b"\r\n")
        assert status(second) == 200
        asking = connected(address, REQUEST + b"\r\n")
        assert status(asking) == 200
        assert heard(first) == b""
        second.sendall(REQUEST + b"\r\n")
        assert status(second) == 200  # it keeps its place, because it was the younger one
        for connection in (second, asking):
            connection.close()


def test_of_too_many_only_some_hear_why(run):
    with served(run, Limits(client_connections=1)) as address:
        keeping = connected(address)
        heard_by = [heard(each) for each in [connected(address) for _ in range(LINGERING + 50)]]
        assert sum(each.startswith(b"HTTP/1.1 503 ") for each in heard_by) >= 1
        assert all(each == b"" or each.startswith(b"HTTP/1.1 503 ") for each in heard_by)
        keeping.close()
