"""Folders at a URL, through fsspec: list, read and write objects, each of them whole or absent."""

import errno
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cascader.errors import CascaderError, DataError, MissingExtraError, SettingsError, StorageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: These put an object in one step; elsewhere, it is written under another name and then moved.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
#: What fsspec can read, but not list reliably, lock or write.
_NO_PLACES = frozenset({"http", "https"})
_EXTRAS = {"s3": "'cascader[s3]'", "s3a": "'cascader[s3]'"}
#: What tells apart two versions of an object: file systems have some of these.
_VERSIONS = ("ETag", "etag", "generation", "ino", "mtime", "LastModified", "last_modified", "modified", "created")
#: A part of a name: what runs use, and nothing that means something to a file system.
_PART = re.compile(r"\w([\w .,+()=@-]{0,198}[\w,+()=@-])?")
_NO_CREDENTIALS = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}
)
_LONGEST_REASON = 300


def is_url(address: str) -> bool:
    """Whether an address is a URL, such as s3://bucket/runs/mine; one letter and a colon is a drive.

    >>> is_url("s3://bucket/runs/mine"), is_url("runs/mine"), is_url("C://runs")
    (True, False, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", address) is not None


class Found(NamedTuple):
    """A small object as it was read, and what `swap` compares it by."""

    content: bytes
    version: str


class Listed(NamedTuple):
    """What a listing says of an object."""

    version: str  # changes whenever the object is replaced
    written_at: float | None  # in seconds of the Unix epoch, if it is known


class Remote:
    """The objects below a URL, by names that are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files = _file_system(self.url)
        self._root: str = self._files._strip_protocol(self.url)
        protocols = self._files.protocol
        self._protocols = {protocols} if isinstance(protocols, str) else set(protocols)
        self._puts_whole = bool(self._protocols & _OBJECT_STORES)

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"

    def address(self, name: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def list(self, below: str = "") -> dict[str, Listed]:
        """All objects by name, hidden ones included; a name that no run has is an error."""
        with self._explained(below):
            found = self._files.find(self._path(below), detail=True)
            if not found:
                self._check_bucket()
        prefix = f"{self._root}/"
        named = {path.removeprefix(prefix): info for path, info in found.items() if info["type"] == "file"}
        listed = {
            name: Listed(_version(info), _written_at(info)) for name, info in named.items() if name and name[-1] != "/"
        }
        self._check_names(listed)
        return listed

    def _check_bucket(self) -> None:
        """An empty listing can mean that there is no bucket at all."""
        if self._protocols & {"s3", "s3a"}:
            self._files.call_s3("head_bucket", Bucket=self._root.split("/")[0])

    def _check_names(self, names: Collection[str]) -> None:
        """Names from elsewhere become paths here, so they are matched, not joined."""
        for name in names:
            if not all(is_hidden(part) or _PART.fullmatch(part) for part in name.split("/")):
                raise DataError(
                    f"{self.url} has an object called {name!r}, which no run has: it could be written outside of its "
                    "folder. Remove it, or ask whoever filled this place."
                )
            folders = ["/".join(name.split("/")[:depth]) for depth in range(1, name.count("/") + 1)]
            if any(folder in names for folder in folders):
                raise DataError(
                    f"{self.url} has {name!r} below an object, expected below a folder. Remove one of them."
                )

    def get(self, name: str, target: Path) -> None:
        """Copy an object to a file."""
        with self._explained(name):
            self._files.get_file(self._path(name), str(target))

    def put(self, name: str, source: Path) -> str:
        """Put a file, whole or not at all, and return its version."""
        with self._explained(name):
            if self._puts_whole:
                self._files.put_file(str(source), self._path(name))
            else:
                self._put_and_move(name, source)
            return _version(self._files.info(self._path(name)))

    def _put_and_move(self, name: str, source: Path) -> None:
        folder, _, last = self._path(name).rpartition("/")
        temporary = f"{folder}/.{last}.{secrets.token_hex(4)}.tmp"
        self._files.makedirs(folder, exist_ok=True)
        self._files.put_file(str(source), temporary)
        self._files.mv(temporary, self._path(name))

    def remove(self, *names: str) -> None:
        """Remove objects; one that is not there is no error."""
        for name in names:
            with self._explained(name):
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    self._check_bucket()

    def is_writable(self) -> bool:
        """Whether objects can be put here, by trying."""
        name = f".probe-{secrets.token_hex(4)}"
        try:
            with self._explained(name):
                self._write(name, b"")
        except StorageError as error:
            if isinstance(error.__cause__, PermissionError | NotImplementedError):
                return False
            raise
        self.remove(name)
        return True

    # Small objects that several processes want to have.

    def read(self, name: str) -> Found | None:
        """Read a small object; None if there is none."""
        with self._explained(name):
            try:
                version = _version(self._files.info(self._path(name)))  # first: an old one makes `swap` fail, rightly
                return Found(self._files.cat_file(self._path(name)), version)
            except FileNotFoundError:
                self._check_bucket()
                return None

    def create(self, name: str, content: bytes) -> bool:
        """Write a small object unless there is one; False if there is."""
        with self._explained(name):
            try:
                self._write(name, content, exclusive=True)
            except FileExistsError:
                return False
            except OSError as error:
                if _is_refused(error):  # another one was made at the same moment
                    return False
                raise
        return True

    def swap(self, name: str, content: bytes, old: Found) -> bool:
        """Replace a small object unless it has changed since it was read; False if it has."""
        if not self._protocols & {"s3", "s3a"}:
            return self._swap_in_steps(name, content, old)
        with self._explained(name):
            try:
                self._files.pipe_file(self._path(name), content, IfMatch=old.version.split(" ")[-1])
            except FileNotFoundError:
                self._check_bucket()
                return False
            except OSError as error:
                if _is_refused(error):
                    return False
                if error.errno == errno.ENOSYS:  # a server without conditional writes
                    return self._swap_in_steps(name, content, old)
                raise
        return True

    def _swap_in_steps(self, name: str, content: bytes, old: Found) -> bool:
        """Compare, then write: where nothing does both at once, two processes can meet in between."""
        found = self.read(name)
        if found is None or found.content != old.content:
            return False
        with self._explained(name):
            self._write(name, content)
        return True

    def _write(self, name: str, content: bytes, exclusive: bool = False) -> None:
        path = self._path(name)
        if self._puts_whole:
            self._files.pipe_file(path, content, mode="create" if exclusive else "overwrite")
            return
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._files.open(path, "xb" if exclusive else "wb") as file:
            file.write(content)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Say in a sentence what is wrong with a place, whatever its file system raises."""
        try:
            yield
        except CascaderError:
            raise
        except Exception as error:
            raise self._in_words(error, self.address(name)) from error

    def _in_words(self, error: Exception, where: str) -> StorageError:
        reason = _reason(error)
        if type(error).__name__ in _NO_CREDENTIALS:
            return StorageError(
                f"there are no credentials for {where}: {reason}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or AWS_PROFILE."
            )
        if isinstance(error, PermissionError):
            return StorageError(
                f"{where} is refused: {reason}. Check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE), and what they are allowed to do. What this machine has of it is unchanged."
            )
        if isinstance(error, FileNotFoundError):
            return StorageError(
                f"{where} is not there: {reason}. Has its bucket or folder been removed, or is its name another? Make "
                "it, and run the same command again: what this machine has of it is kept."
            )
        return StorageError(
            f"cannot reach {where}: {reason}. Check the address, the network and AWS_ENDPOINT_URL, and run the same "
            "command again: it goes on from what is there."
        )


def _file_system(url: str) -> "AbstractFileSystem":
    """The file system of a URL, which neither is shared with others nor remembers what it has listed."""
    import fsspec

    protocol = url.partition("://")[0]
    if protocol.lower() in _NO_PLACES:
        raise SettingsError(
            f"{url} is the address of a web server, which cannot keep a run. Use s3://BUCKET/FOLDER or a path, and "
            "download a run that lies there first."
        )
    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        raise SettingsError(
            f"{url} has the protocol {protocol!r}, which is not known. Use s3://BUCKET/FOLDER, another that fsspec "
            "knows, or a path."
        ) from error
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        reason = f"Install it with: pip install {extra}" if extra else f"{_reason(error)}."
        raise MissingExtraError(f"{protocol}:// needs a package that is not installed. {reason}") from error
    try:
        return kind(**kind._get_kwargs_from_urls(url), use_listings_cache=False, skip_instance_cache=True)
    except Exception as error:
        raise SettingsError(f"{url} is not an address that can be used: {_reason(error)}.") from error


def is_hidden(part: str) -> bool:
    """Whether a file or folder of this name is not part of a run: leases, and what is being written."""
    return part.startswith(".") and part.strip(".") != "" and "\\" not in part


def _version(info: Mapping[str, Any]) -> str:
    """Something that changes whenever an object is replaced; its ETag comes last, where it has one."""
    values = [info[key] for key in _VERSIONS if info.get(key) is not None]
    found = [str(value.timestamp() if isinstance(value, datetime) else value) for value in values]
    return " ".join([str(info.get("size")), *(found[:1] if "ETag" in info else found)])


def _written_at(info: Mapping[str, Any]) -> float | None:
    for key in ("LastModified", "last_modified", "mtime", "modified", "created"):
        found = info.get(key)
        if isinstance(found, datetime):
            return found.timestamp()
        if isinstance(found, int | float):
            return float(found)
    return None


def _is_refused(error: OSError) -> bool:
    """Whether a write was refused because the object is there, or has changed."""
    response = getattr(error.__cause__ or error, "response", None) or {}
    return response.get("Error", {}).get("Code") in ("PreconditionFailed", "ConditionalRequestConflict")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
