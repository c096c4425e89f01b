"""The server process: a socket, the models, and a graceful shutdown."""

import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from cascader.errors import SettingsError
from cascader.runs import load_run
from cascader.serve.app import create_app
from cascader.serve.batcher import Batching
from cascader.serve.middleware import is_loopback, request_log

#: How long open requests may take once the server is told to stop.
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
    """Serve a run until SIGINT or SIGTERM; `ready` gets the address once connections are accepted."""
    if not is_loopback(host) and not token:
        raise SettingsError(
            f"other machines can reach {host}, so anyone there could ask. Set --token TOKEN, or serve on 127.0.0.1."
        )
    with _bound(host, port) as listener, _exit_on_signals():
        app = create_app(load_run(folder), host=host, token=token, batching=batching)
        _log_requests()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE_SECONDS
        )
        name = f"[{host}]" if ":" in host else host
        # The socket listens already: whoever connects before uvicorn runs is answered a moment later.
        ready(f"http://{name}:{listener.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make SIGINT and SIGTERM a normal exit: before uvicorn runs, and when it raises them again after its shutdown."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in signals}
    try:
        yield
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
