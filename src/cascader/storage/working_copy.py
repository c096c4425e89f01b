"""Working copies: what this machine has of a folder at a URL, and how the two are kept alike.

The URL is the truth: a file is put there before it appears in the copy, and a pull makes the copy what the URL has.
"""

import fnmatch
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from cascader.paths import entries_of, resolved
from cascader.storage.lease import Lease
from cascader.storage.remote import Listed, Remote, is_hidden

logger = logging.getLogger(__name__)
#: The environment variable that names another cache folder.
CACHE_VARIABLE = "CASCADER_CACHE"
#: An object of this name says that the folder around it is being written: to everyone else, it is not there.
PARTIAL = ".partial"
#: With these, the same URL can lead to another place.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_TRANSFERS = 8


def cache_folder() -> Path:
    """The cache folder of this machine, or the one that CASCADER_CACHE names."""
    from platformdirs import user_cache_path

    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else user_cache_path("cascader")


def path_of_copy(url: str) -> Path:
    """Where the cache of this machine has the files of a URL, in a folder whose name a person recognizes."""
    place = url.rstrip("/")
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    last = "".join(character for character in place.rpartition("/")[2] if character.isalnum() or character in "-_")
    name = f"{last[:40]}-{hashlib.sha256(f'{endpoint} {place}'.encode()).hexdigest()[:16]}"
    return resolved(cache_folder()) / "urls" / name / "files"


class WorkingCopy:
    """The files of a folder at a URL, as far as this machine has them, below `path`.

    Beside them, an index has the version at the URL that each file is of, and a lock lets one process at a time change
    files and index. Hidden files stay here.
    """

    def __init__(self, url: str) -> None:
        self.remote = Remote(url)
        self.path = path_of_copy(url)
        self._home = self.path.parent
        self._home.mkdir(parents=True, exist_ok=True)
        self._leases: list[Lease] = []

    def __repr__(self) -> str:
        return f"WorkingCopy({self.remote.url!r})"

    def name_of(self, path: Path) -> str | None:
        """The name at the URL of a file or folder of the copy; None if it stays here."""
        name = "" if path == self.path else path.relative_to(self.path).as_posix()
        return None if any(is_hidden(part) for part in name.split("/")) else name

    # From the URL.

    def pull(self, path: Path, without: Sequence[str] = ()) -> None:
        """Make what is below `path` as it is at the URL, except for names that match a pattern of `without`."""
        below = self.name_of(path) or ""
        with self._alone() as index:
            listed = self.remote.list(below)
            there = _whole(listed)
            if path == self.path and not there and index:
                self._set_aside(index)
            wanted = {name: found for name, found in there.items() if not _matches(name, without)}
            new = {name: found for name, found in wanted.items() if not self._is_current(name, found.version, index)}
            self._fetch(new, index)
            for name in self._names_below(path):
                if name not in wanted and not _matches(name, without):
                    (self.path / name).unlink(missing_ok=True)
                    index.pop(name, None)
                    _remove_empty_folders((self.path / name).parent, self.path)

    def _fetch(self, new: Mapping[str, Listed], index: dict[str, Any]) -> None:
        def fetch(name: str) -> None:
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            try:
                self.remote.get(name, temporary)
                if (written_at := new[name].written_at) is not None:
                    os.utime(temporary, (written_at, written_at))  # the latest results are told by their time
                temporary.replace(target)
                index[name] = [new[name].version, *_state(target)]
            finally:
                temporary.unlink(missing_ok=True)

        with ThreadPoolExecutor(_TRANSFERS) as pool:
            list(pool.map(fetch, new))

    def _is_current(self, name: str, version: str, index: Mapping[str, Any]) -> bool:
        try:
            return index.get(name) == [version, *_state(self.path / name)]
        except OSError:
            return False

    def _names_below(self, path: Path) -> list[str]:
        found = [Path(entry.path) for entry in entries_of(path) if not entry.is_dir(follow_symlinks=False)]
        return [name for each in found if (name := self.name_of(each)) is not None]

    def _set_aside(self, index: dict[str, Any]) -> None:
        """Keep what this machine has of a run that is no longer at its URL, where nothing takes it for that run."""
        if self.path.exists():
            aside = self._home / f"removed-{secrets.token_hex(4)}"
            self.path.replace(aside)
            logger.info("%s is empty now. What this machine had of it is kept in %s.", self.remote.url, aside)
        index.clear()

    # To the URL.

    def place(self, temporary: Path, path: Path) -> None:
        """Put a file to the URL, and then into its place in the copy."""
        name = self.name_of(path)
        if name is None:
            temporary.replace(path)
            return
        with self._alone() as index:
            self._check_leases(name)
            version = self.remote.put(name, temporary)
            self._check_leases(name)
            if temporary != path:
                temporary.replace(path)
            index[name] = [version, *_state(path)]

    def place_folder(self, temporary: Path, path: Path, old: Path | None = None) -> None:
        """Put all files of a folder to the URL, and then the folder into its place; what was there moves to `old`."""
        folder = self.name_of(path)
        if folder is None:
            swap_folders(temporary, path, old)
            return
        prefix = f"{folder}/" if folder else ""
        files = {
            prefix + Path(entry.path).relative_to(temporary).as_posix(): Path(entry.path)
            for entry in entries_of(temporary)
            if entry.is_file() and not is_hidden(entry.name)
        }
        with self._alone() as index:
            self._check_leases(folder)
            self._put_partial(prefix + PARTIAL)
            self.remote.remove(*(name for name in _shown(self.remote.list(folder)) if name not in files))
            with ThreadPoolExecutor(_TRANSFERS) as pool:
                versions = dict(zip(files, pool.map(self.remote.put, files.keys(), files.values()), strict=True))
            self._check_leases(folder)
            self.remote.remove(prefix + PARTIAL)
            swap_folders(temporary, path, old)
            for name in [name for name in index if name.startswith(prefix)]:
                del index[name]
            index.update({name: [versions[name], *_state(self.path / name)] for name in files})

    def _put_partial(self, name: str) -> None:
        empty = self._home / f".empty-{secrets.token_hex(4)}"
        empty.touch()
        try:
            self.remote.put(name, empty)
        finally:
            empty.unlink()

    def remove(self, path: Path) -> None:
        """Remove a file or a folder at the URL, and then here."""
        name = self.name_of(path)
        if name is None:
            remove_here(path)
            return
        with self._alone() as index:
            self._check_leases(name)
            below = [each for each in index if each == name or each.startswith(f"{name}/")]
            self.remote.remove(*{*below, *_shown(self.remote.list(name))})
            remove_here(path)
            for each in below:
                del index[each]

    # Who may write.

    @cached_property
    def is_writable(self) -> bool:
        """Whether the URL takes files from this process."""
        return self.remote.is_writable()

    def has(self, path: Path) -> bool:
        """Whether the URL has any file below a folder of the copy."""
        return bool(_whole(self.remote.list(self.name_of(path) or "")))

    @contextmanager
    def leased(self, folder: Path) -> Iterator[None]:
        """Hold the lease of a folder; whoever calls has its lock."""
        lease = Lease(self.remote, self.name_of(folder) or "", self._identity())
        lease.acquire()
        self._leases.append(lease)
        try:
            yield
        finally:
            self._leases.remove(lease)
            lease.release()

    def _check_leases(self, name: str) -> None:
        for lease in self._leases:
            if not lease.folder or f"{name}/".startswith(f"{lease.folder}/"):
                lease.check()

    def _identity(self) -> str:
        """What tells this copy from those of other machines and other cache folders."""
        path = self._home / "id"
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(secrets.token_hex(16))
        return path.read_text(encoding="utf-8")

    @contextmanager
    def _alone(self) -> Iterator[dict[str, Any]]:
        """Yield the index to one process at a time, and write down what becomes of it, whatever happens."""
        from filelock import FileLock

        with FileLock(self._home / ".lock", fallback_to_soft=False):
            index = self._read_index()
            before = dict(index)
            try:
                yield index
            finally:
                if index != before:
                    temporary = self._home / f".index.{secrets.token_hex(4)}.tmp"
                    temporary.write_text(json.dumps(index), encoding="utf-8")
                    temporary.replace(self._home / "index.json")

    def _read_index(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._home / "index.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):  # without it, everything is fetched again
            return {}


def remove_here(path: Path) -> None:
    """Remove a file or a folder on this machine; one that is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def swap_folders(temporary: Path, path: Path, old: Path | None) -> None:
    """Rename a folder into its place; what was there moves to `old`, and must be empty without one."""
    if path.exists():
        path.rmdir() if old is None else path.replace(old)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(path)


def _shown(names: Collection[str]) -> list[str]:
    return [name for name in names if not any(is_hidden(part) for part in name.split("/"))]


def _whole(listed: Mapping[str, Listed]) -> dict[str, Listed]:
    """The files that can be read: none that is hidden, and none of a folder that is being written."""
    partial = [name.removesuffix(PARTIAL) for name in listed if name.split("/")[-1] == PARTIAL]
    return {name: listed[name] for name in _shown(listed) if not any(name.startswith(folder) for folder in partial)}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _remove_empty_folders(folder: Path, root: Path) -> None:
    """A folder that has no file anymore is not at the URL, and must not look as if something were in it."""
    with suppress(OSError):  # it has files
        while folder != root:
            folder.rmdir()
            folder = folder.parent
