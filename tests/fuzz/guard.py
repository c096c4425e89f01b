"""What no case may do, seen by Python's own audit events: write outside its folders, run code, send a packet.

What is forbidden is noted and refused. Libraries that are not written in Python raise no events when they write: the
sandbox compares its files for that.
"""

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Offense = Literal["outside", "code", "packet"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # the arguments of each event that are paths, and the one that says what folder they are relative to
    "os.chmod": ((0,), 2),
    "os.chown": ((0,), 3),
    "os.link": ((1,), 3),
    "os.mkdir": ((0,), 2),
    "os.remove": ((0,), 1),
    "os.rename": ((0, 1), 2),
    "os.rmdir": ((0,), 1),
    "os.symlink": ((1,), 2),
    "os.truncate": ((0,), None),
    "os.utime": ((0,), 3),
}
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn")
_SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname")


@dataclass
class Guard:
    """Notes every offense: writing outside `allowed`, code from within `distrusted`, or a packet."""

    allowed: Sequence[Path]
    distrusted: Path
    offenses: list[tuple[Offense, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._allowed = [os.path.realpath(path) for path in self.allowed]
        self._distrusted = os.path.realpath(self.distrusted)

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note and refuse an event that is an offense."""
        found = self._offense(event, arguments)
        if found is not None:
            self.offenses.append((found, f"{event}{arguments!r}"[:500]))
            raise PermissionError(f"forbidden while fuzzing: {event}")

    def _offense(self, event: str, arguments: tuple[object, ...]) -> Offense | None:
        if event == "open":
            return "outside" if self._opens_outside(*arguments) else None
        if event in _CHANGES:
            return "outside" if self._changes_outside(event, arguments) else None
        if event in _SENDS:
            return None if _family(arguments[0]) == socket.AF_UNIX else "packet"
        if event in _LOOKUPS:
            return None if _is_address(arguments[0]) else "packet"
        if event in _PROCESSES or event == "pickle.find_class" or self._is_distrusted(event, arguments):
            return "code"
        return None

    def _opens_outside(self, path: object, mode: object, flags: object) -> bool:
        writes = bool(flags & _WRITING) if isinstance(flags, int) else False
        return writes and not isinstance(path, int) and not self._is_allowed(os.path.realpath(os.fsdecode(path)))

    def _changes_outside(self, event: str, arguments: tuple[object, ...]) -> bool:
        places, relative = _CHANGES[event]
        folder = arguments[relative] if relative is not None and relative < len(arguments) else -1
        paths = (_absolute(arguments[place], folder) for place in places if not isinstance(arguments[place], int))
        return not all(self._is_allowed(path) for path in paths)

    def _is_allowed(self, path: str) -> bool:
        return path == os.devnull or any(path == top or path.startswith(top + os.sep) for top in self._allowed)

    def _is_distrusted(self, event: str, arguments: tuple[object, ...]) -> bool:
        """Whether code is run that a case brought along."""
        if event not in ("exec", "import", "ctypes.dlopen"):
            return False
        source = arguments[1] if event == "import" else getattr(arguments[0], "co_filename", arguments[0])
        is_file = isinstance(source, str) and Path(source).exists()  # not "<string>", which libraries make code from
        return is_file and os.path.realpath(source).startswith(self._distrusted + os.sep)


def _absolute(path: object, folder: object) -> str:
    """The path of a name, whose last part is not followed if it is a link."""
    name = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not name.startswith(os.sep):
        name = f"/proc/self/fd/{folder}/{name}"
    head, tail = os.path.split(name.rstrip(os.sep))
    return _real(name) if tail in ("", ".", "..") else f"{_real(head)}/{tail}"


def _real(path: str) -> str:
    """Like os.path.realpath, but what is there is found in one step, however many folders it is in."""
    try:
        found = os.open(path, os.O_PATH)
    except OSError:
        return os.path.realpath(path)
    try:
        return str(Path(f"/proc/self/fd/{found}").readlink())
    except OSError:  # it is longer than a path may be
        return os.path.realpath(path)
    finally:
        os.close(found)


def _family(sock: object) -> int:
    return getattr(sock, "family", socket.AF_UNSPEC)


def _is_address(host: object) -> bool:
    """Whether a host is written as an address, which nobody has to be asked for."""
    try:
        ipaddress.ip_address(os.fsdecode(host or "127.0.0.1"))
    except (ValueError, TypeError):
        return False
    return True


_active: Guard | None = None
_inside = threading.local()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _active is None or getattr(_inside, "is_set", False):
        return
    _inside.is_set = True  # what the check itself does is no event
    try:
        _active.check(event, arguments)
    finally:
        _inside.is_set = False


def _install_once() -> Callable[[], None]:
    installed: list[bool] = []

    def install() -> None:
        if not installed:  # a hook can never be removed
            sys.addaudithook(_hook)
            installed.append(True)

    return install


_install = _install_once()


@contextmanager
def watching(guard: Guard) -> Iterator[Guard]:
    """Let the guard see everything that this process does within the block."""
    global _active
    _install()
    _active = guard
    try:
        yield guard
    finally:
        _active = None
