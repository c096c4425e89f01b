"""Write files safely: each under a temporary name, then renamed into place when complete, and put to its URL before."""

import glob
import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

from cascader.errors import DataError, StorageError
from cascader.paths import entries_of, regular, resolved
from cascader.storage.addresses import by_address, copy_of
from cascader.storage.working_copy import swap_folders

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
#: The file of a folder that `locked` locks. Its first byte is blank: Windows lets no one else read what is locked.
LOCK = ".lock"
_ABANDONED_SECONDS = 24 * 3600


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, and rename it to `path` if the block succeeds."""
    with _explained(path):
        temporary = _temporary_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # safetensors writes files that only their owner can read
            _flush_to_disk(temporary)
            copy = copy_of(path)
            temporary.replace(path) if copy is None else copy.place(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, and rename it to `path` if the block succeeds."""
    path = resolved(path)
    with _explained(path):
        if path.exists() and (path == Path.cwd() or not path.is_dir() or any(path.iterdir())):
            raise StorageError(f"{path} already exists. Choose another folder, or remove it first.")
        temporary = _temporary_path(path)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            _place_folder(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, which replaces whatever is there if the block succeeds."""
    with _explained(path):
        temporary, old = _temporary_path(path), _temporary_path(path)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for entry in list(entries_of(temporary)):
                if entry.is_file():
                    with atomic_file(Path(entry.path)) as copy:  # for the mode that new files have
                        Path(entry.path).replace(copy)
            _place_folder(temporary, path, old)
        finally:
            for folder in (temporary, old):
                shutil.rmtree(folder, ignore_errors=True)


def _place_folder(temporary: Path, path: Path, old: Path | None = None) -> None:
    copy = copy_of(path)
    if copy is None:
        swap_folders(temporary, path, old)
    else:
        copy.place_folder(temporary, path, old)


def _temporary_path(path: Path) -> Path:
    """A new path next to `path`; what killed processes left under such names long ago is removed."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if time.time() - old.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _flush_to_disk(path: Path) -> None:
    # Without this, a power cut right after the rename can leave an empty file under the final name.
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = _disk_error(error)
        if reason is None:
            raise
        raise StorageError(f"cannot write {by_address(str(path))}: {reason}. Existing files are unchanged.") from error


def _disk_error(error: Exception) -> str | None:
    """Why a file could not be written, or None if the error is of another kind."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # Libraries written in Rust, safetensors and tokenizers, raise types of their own.
    number = re.search(r"\(os error (\d+)\)", str(error))
    return os.strerror(int(number[1])) if number else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; a second one waits, and logs which process it is waiting for.

    The lock ends with the process, however that ends: a stale one never has to be removed. In a working copy, the
    process holds the lease of the folder as well, and other machines wait, too.
    """
    from filelock import FileLock, Timeout

    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, fallback_to_soft=False, on_acquired=_write_holder)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            where, holder = by_address(str(folder)), _holder(folder / LOCK)
            logger.info("%s is in use by %s: waiting until it is done.", where, holder)
            lock.acquire()
    copy = copy_of(folder)
    try:
        with nullcontext() if copy is None else copy.leased(folder):
            yield
    finally:
        lock.release()


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f" {os.getpid()}".encode())


def _holder(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:  # unbuffered: Windows refuses to read the locked first byte
            file.seek(1)
            return f"process {int(file.read())}"
    except (OSError, ValueError):  # locked a moment ago, and not yet written
        return "another process"


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """Read a whole file."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with regular(path).open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """The versions of those `packages` that are installed."""
    return {package: found for package in packages if (found := _installed_version(package)) is not None}


@cache  # every evaluation asks for several, and each is a file to find, read and parse
def _installed_version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
