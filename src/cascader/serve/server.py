"""The process: a socket, signals, a log, and an end in time whatever still runs."""

import contextlib
import ctypes
import errno
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from cascader.errors import SettingsError
from cascader.runs import load_run
from cascader.serve.app import create_app
from cascader.serve.batcher import Batching
from cascader.serve.connections import LINGERING, Connection
from cascader.serve.middleware import is_loopback, request_log
from cascader.serve.schemas import Limits
from cascader.serve.service import QueryService

#: Told to end, the server gives those who are being answered this long, and then itself: five seconds in all.
_GRACE_SECONDS, _MOST_SECONDS = 2, 4.2
_WATCH_SECONDS = 0.1
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
#: How long a thread may keep the others waiting: a fifth of Python's own, because health must be answered at any time.
_SWITCH_SECONDS = 0.001
#: How often memory that is free goes back to the system.
_SECONDS_BETWEEN_RETURNS = 10.0


def serve(
    run: str | Path,
    *,
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    verify: bool = True,
    read_only: bool = False,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    batching: Batching = Batching(),  # noqa: B008 - likewise
) -> None:
    """Serve a run until SIGINT or SIGTERM; `ready` gets the address once connections are accepted."""
    _check_token(token)
    with _bound(host, port) as listener, _exit_on_signals() as heard:
        address, number = listener.getsockname()[:2]
        if not is_loopback(address) and not token:
            raise SettingsError(
                f"other machines can reach {host}, so anyone there could ask. Set --token TOKEN, or serve on 127.0.0.1."
            )
        name = address if address in _EVERYWHERE else host
        loaded, access = load_run(run, verify=verify), {"host": name, "token": token}
        app = create_app(loaded, **access, read_only=read_only, limits=limits, batching=batching)
        _log_requests()
        _keep_others_from_waiting()
        server = uvicorn.Server(_config(app, limits))
        with _ended_in_time(server, app.state.service), _giving_back_memory():
            # The socket listens already: whoever connects before uvicorn runs is answered a moment later.
            if heard:  # and what it raised was lost in a library that lets no exception pass
                sys.exit(0)
            ready(f"http://{f'[{host}]' if ':' in host else host}:{number}/")
            server.run(sockets=[listener])


@contextlib.contextmanager
def _giving_back_memory() -> Iterator[None]:
    """Give free memory back every few seconds, in a thread of its own."""
    has_ended = threading.Event()

    def run() -> None:
        while give_back_memory() and not has_ended.wait(_SECONDS_BETWEEN_RETURNS):
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def give_back_memory() -> bool:
    """Let glibc return what is free to the system, wherever it lies in its heaps; whether this is glibc.

    By itself, it returns only what is free at the end of a heap. The blocks of a language model have as many sizes as
    there are batches, so heaps fill with holes, and a server grows for hours. To have each block returned as soon as it
    is free would take a third of the time, for the system then hands out every page again and again.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def _keep_others_from_waiting() -> None:
    """Let threads take turns often, and look for garbage only among what is new: both would delay answers."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()


def _check_token(token: str) -> None:
    if not token.isprintable() or token != token.strip():
        raise SettingsError("the token has spaces around it, or characters that a header cannot have. Choose another.")


def _config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections + LINGERING + 1,  # connections of ours are fewer, so it is a second bolt
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


@contextlib.contextmanager
def _ended_in_time(server: uvicorn.Server, service: QueryService) -> Iterator[None]:
    """End the process if the block has not ended in time after a signal; after the block, it is the caller's again.

    A thread of its own sees to that, because the event loop may be what is late.
    """
    has_ended = threading.Event()
    watch = threading.Thread(target=_end_in_time, args=(server, service, has_ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        service.join()  # Python aborts if it ends while a thread computes; the watch waits only so long
        has_ended.set()
        watch.join()


def _end_in_time(server: uvicorn.Server, service: QueryService, has_ended: threading.Event) -> None:
    """Once a signal came, send away who waits; in the end, give up what still runs.

    Files are whole or absent anyway.
    """
    while not server.should_exit:
        if has_ended.wait(_WATCH_SECONDS):
            return
    service.stop()
    if has_ended.wait(_MOST_SECONDS):
        return
    request_log.warning(json.dumps({"error": f"ended with work unfinished after {_MOST_SECONDS:g} seconds"}))
    os._exit(0)


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[list[int]]:
    """Make SIGINT and SIGTERM a normal exit: before uvicorn runs, and when it raises them again after its shutdown.

    Yields the signals that came.
    """
    heard: list[int] = []

    def exit_at(number: int, _: object) -> None:
        heard.append(number)
        sys.exit(0)

    before = {number: signal.signal(number, exit_at) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the socket before models are loaded, so that a port in use is reported at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise SettingsError(
            f"{host!r} and port {port} are not a valid address: {error}. Use --host 127.0.0.1."
        ) from error
    # asyncio turns Nagle's delay off only for sockets that name their protocol; else each answer would wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # else two servers could bind the port, and only one of them listen
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"port {port} of {host} is in use. Choose another with --port, or --port 0 for any"
            else:
                reason = f"cannot listen on port {port} of {host}: {error.strerror}. Choose another --host or --port"
            raise SettingsError(f"{reason}.") from error
        yield listener


def _log_requests() -> None:
    """Log one line of JSON per request to standard error; uvicorn itself logs only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    request_log.handlers, request_log.propagate = [handler], False
    request_log.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
