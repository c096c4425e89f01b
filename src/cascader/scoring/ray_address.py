"""Whether the head of a Ray cluster listens at an address: found out in seconds, where Ray would try for minutes."""

import os
import socket

from cascader.errors import EngineError

#: What Ray calls the address of a new cluster on this machine.
NEW_HERE = "local"
_SECONDS_TO_CONNECT = 5.0
_SECONDS_TO_ANSWER = 10.0
#: The head speaks gRPC, which is HTTP/2: a client begins with this, the last nine bytes of which are empty settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
#: The server then begins with settings of its own: the header of a frame, which says of what kind it is.
_HEADER_BYTES, _KIND, _SETTINGS = 9, 3, 4


def check_reachable(address: str) -> None:
    """Refuse what is no address, one at which nobody answers, and one at which something other than Ray's head does."""
    host, colon, port = address.rpartition(":")
    if address in ("auto", NEW_HERE):
        return
    if "://" in address or not colon or not port.isdecimal():
        raise EngineError(
            f"{address!r} is no address of a Ray cluster, expected HOST:PORT, such as 10.0.0.1:6379, which `ray start "
            "--head` prints. From outside the cluster, use: ray job submit"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT) as connection:
            found = _other_than_head(connection)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EngineError(
            f"no Ray cluster answers at {address}: {reason}. Check the address, or start one there with: ray start "
            f"--head --port={port}"
        ) from error
    if found is not None:
        raise EngineError(
            f"what listens at {address} is no head of a Ray cluster: {found}. Expected the address that `ray start "
            "--head` prints, usually with port 6379 (8265 is that of the dashboard). Check the address."
        )


def _other_than_head(connection: socket.socket) -> str | None:
    """Return how a listener behaves that does not speak HTTP/2; behind TLS, only Ray itself can tell."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return None
    connection.settimeout(_SECONDS_TO_ANSWER)
    try:
        connection.sendall(_PREFACE)
        with connection.makefile("rb") as answers:
            answer = answers.read(_HEADER_BYTES)
    except TimeoutError:
        return f"it has not answered for {_SECONDS_TO_ANSWER:.0f} seconds"
    except OSError:  # of who hangs up on what it does not understand
        answer = b""
    if len(answer) < _HEADER_BYTES:
        return "it closed the connection"
    return None if answer[_KIND] == _SETTINGS else f"it answered {answer!r}, not in gRPC"
