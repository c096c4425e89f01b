"""Leases: locks for folders at a URL, which end by themselves when their holder is gone."""

import json
import logging
import os
import platform
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from cascader.errors import CascaderError, StorageError
from cascader.storage.remote import Remote

logger = logging.getLogger(__name__)
#: The object of a folder that holds its lease.
LEASE = ".lease"
#: The environment variable that says how many seconds a lease holds without a sign of life.
SECONDS_VARIABLE = "CASCADER_LEASE_SECONDS"
_SECONDS = 60.0
_LONGEST_SECONDS = 3600.0
#: A lease is renewed so many times before it would end.
_RENEWALS = 3
#: Who waits looks so often while one lease would last.
_LOOKS = 20


@dataclass(frozen=True)
class _Holder:
    """Who holds a lease, and for how many seconds after each sign of life."""

    token: str
    copy: str  # of the working copy whose lock the holder has
    host: str
    process: int
    seconds: float
    renewals: int = 0  # so that every sign of life is another content

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class Lease:
    """The right to write below a folder at a URL, renewed by a thread until it is released.

    Who waits for it measures by its own clock that it was not renewed for as long as it holds: no two clocks have to
    agree. `copy` names the working copy whose lock this process has. A lease from the same copy on the same host was
    left by a process that is gone, because that lock ends with its process.
    """

    def __init__(self, remote: Remote, folder: str, copy: str) -> None:
        self._remote, self.folder = remote, folder
        self._name = f"{folder}/{LEASE}" if folder else LEASE
        self._mine = _Holder(secrets.token_hex(8), copy, platform.node(), os.getpid(), _seconds())
        self._lost_to = ""
        self._holds_until = 0.0
        self._mutex, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"lease of {folder}")

    @property
    def where(self) -> str:
        """The URL of the folder."""
        return self._remote.address(self.folder)

    def acquire(self) -> None:
        """Wait until nobody else has the lease, and take it."""
        seen, seen_at = b"", _now()
        while True:
            started = _now()
            if self._remote.create(self._name, self._mine.encoded()):
                break
            found = self._remote.read(self._name)
            if found is None:  # released meanwhile
                continue
            holder = _parsed(found.content)
            if found.content != seen:
                self._say_who(holder, seen == b"")
                seen, seen_at = found.content, started
            if self._is_gone(holder, _now() - seen_at) and self._remote.swap(self._name, self._mine.encoded(), found):
                logger.info("took over the lease of %s: %s is gone.", self.where, holder or "its holder")
                break
            time.sleep((holder or self._mine).seconds / _LOOKS)
        self._holds_until = started + self._mine.seconds
        self._thread.start()

    def _say_who(self, holder: _Holder | None, is_first: bool) -> None:
        if is_first and not self._is_gone(holder, 0.0):
            who, seconds = holder or "another process", (holder or self._mine).seconds
            logger.info(
                "%s is in use by %s: waiting until it is done, or has given no sign of life for %g seconds.",
                self.where, who, seconds,
            )  # fmt: skip

    def _is_gone(self, holder: _Holder | None, silent_seconds: float) -> bool:
        is_here = holder is not None and (holder.copy, holder.host) == (self._mine.copy, self._mine.host)
        return is_here or silent_seconds >= (holder or self._mine).seconds

    def check(self) -> None:
        """Stop a process that has lost its lease, before it writes."""
        with self._mutex:
            if not self._lost_to and _now() >= self._holds_until:
                self._renew()
        if self._lost_to:
            raise StorageError(
                f"{self.where} is in use by {self._lost_to}, because this process gave no sign of life for "
                f"{self._mine.seconds:g} seconds. It writes nothing more; the same command waits for the other, and "
                "goes on from there."
            )

    def _keep(self) -> None:
        while not self._end.wait(self._mine.seconds / _RENEWALS):
            with self._mutex, suppress(CascaderError):  # tried again, and in the end by `check`, which says why
                self._renew()
            if self._lost_to:
                return

    def _renew(self) -> None:
        started, found = _now(), self._remote.read(self._name)
        holder = None if found is None else _parsed(found.content)
        if found is None or holder is None or holder.token != self._mine.token:
            self._lost_to = str(holder or "another process")
            return
        self._mine = replace(self._mine, renewals=self._mine.renewals + 1)
        if self._remote.swap(self._name, self._mine.encoded(), found):
            self._holds_until = started + self._mine.seconds

    def release(self) -> None:
        """Give the lease back, if it was not lost; if the place cannot be reached, it ends by itself."""
        self._end.set()
        self._thread.join()
        try:
            found = self._remote.read(self._name)
            holder = None if found is None else _parsed(found.content)
            if holder is not None and holder.token == self._mine.token:
                self._remote.remove(self._name)
        except CascaderError as error:
            logger.debug("the lease of %s was not given back: %s", self.where, error)


def _parsed(content: bytes) -> _Holder | None:
    """Who holds a lease; None if a stranger wrote it, or it is being written."""
    try:
        holder = _Holder(**json.loads(content))
        if not 0 < float(holder.seconds) <= _LONGEST_SECONDS:
            return None
        return replace(holder, host=str(holder.host)[:100], process=int(holder.process))
    except (ValueError, TypeError):
        return None


def _seconds() -> float:
    try:
        wanted = float(os.environ.get(SECONDS_VARIABLE) or _SECONDS)
    except ValueError:
        wanted = 0.0
    if not 0 < wanted <= _LONGEST_SECONDS:
        raise StorageError(
            f"{SECONDS_VARIABLE} is {os.environ.get(SECONDS_VARIABLE)!r}, expected seconds, at most "
            f"{_LONGEST_SECONDS:g}. Unset it for {_SECONDS:g}."
        )
    return wanted


def _now() -> float:
    """A clock that goes on while the machine sleeps, where there is one: a lease ends meanwhile."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
