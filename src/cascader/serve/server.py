"""The server process: a socket, the models, and an orderly end."""

import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from cascader.errors import SettingsError
from cascader.runs import load_run
from cascader.serve.app import create_app
from cascader.serve.limits import Batching
from cascader.serve.middleware import is_loopback, request_log

#: How long open requests may take when the server is told to end.
_GRACE_SECONDS = 5


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    batching: Batching = Batching(),  # noqa: B008 - a frozen value
) -> None:
    """Serve a run until SIGINT or SIGTERM; `ready` is told the address once requests are answered."""
    if not is_loopback(host) and not token:
        raise SettingsError(
            f"{host} can be reached from other machines, and everyone there could ask. Give --token TOKEN, or serve on "
            "127.0.0.1."
        )
    with _bound(host, port) as listener, _ended_by_signals() as ending:
        app = create_app(load_run(folder), host=host, token=token, batching=batching)
        _log_requests()
        name = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE_SECONDS
        )
        server = _Server(config, lambda: ready(f"http://{name}:{listener.getsockname()[1]}/"))
        ending.append(server)
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to us: being told to end is no failure."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[list[_Server]]:
    """Lets SIGINT and SIGTERM end the server in the list, or the process where there is none yet."""
    servers: list[_Server] = []

    def end(number: int, _: FrameType | None) -> None:
        if not servers:
            sys.exit(0)
        servers[0].force_exit = servers[0].should_exit and number == signal.SIGINT
        servers[0].should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield servers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket of our own, before models are loaded: that a port is taken should be said at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise SettingsError(f"{host!r} and port {port} are no address: {error}. Take --host 127.0.0.1.") from error
    # Only of sockets that name their protocol does asyncio turn delays off: else each answer would wait some 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # else two servers could be bound, and only one of them listen
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"port {port} of {host} is in use. Choose another with --port, or --port 0 for any"
            else:
                reason = f"cannot listen on port {port} of {host}: {error.strerror}. Choose others: --host, --port"
            raise SettingsError(f"{reason}.") from error
        yield listener


def _log_requests() -> None:
    """One line of JSON a request, on standard error; uvicorn speaks only of what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    request_log.handlers, request_log.propagate = [handler], False
    request_log.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
