"""Download public files into the cache: resumed if interrupted, verified, and added only when complete."""

import errno
import logging
import os
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from cascader.display import progress
from cascader.errors import DataError, StorageError
from cascader.storage import CACHE_VARIABLE, cache_folder, sha256_of

logger = logging.getLogger(__name__)

MIRROR_VARIABLE = "CASCADER_MIRROR"
_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Source:
    """A public file: its name in the cache, the URL of its home, its checksum and its size.

    If `sha256` and `size` are unknown, whoever reads the file must check its content.
    """

    file: str
    home: str
    sha256: str | None = None
    size: int | None = None


def locate(source: Source) -> Path | None:
    """The path of the verified file in the mirror or the cache; None if it must be downloaded."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    if mirror and (Path(mirror) / source.file).is_file():
        path = Path(mirror) / source.file
        _check_sha256(path, source, f"Replace it in the folder that {MIRROR_VARIABLE} names, or unset that variable.")
        return path
    cached = cache_folder() / source.file
    if cached.is_file():
        if source.sha256 in (None, sha256_of(cached)):
            return cached
        logger.warning("%s is damaged: downloading it again.", cached)
    return None


def fetch(source: Source) -> Path:
    """The path of the file, which is downloaded if it is in neither the mirror nor the cache."""
    return locate(source) or _download(source, cache_folder() / source.file)


def _download(source: Source, target: Path) -> Path:
    """Download next to `target`, resuming an earlier attempt, and rename to `target` when complete."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_room(source, part)
        _transfer(source, part)
        _check_part(source, part)
        part.replace(target)
    except OSError as error:
        raise _explained(source, part, error) from error
    except HTTPException as error:
        raise DataError(_unreachable(source, repr(error))) from error
    return target


def _check_room(source: Source, part: Path) -> None:
    done = part.stat().st_size if part.exists() else 0
    if shutil.disk_usage(part.parent).free < (source.size or 1) - done:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _transfer(source: Source, part: Path) -> None:
    """Fetch what is missing; a file of unknown size starts over, because its home may have changed since."""
    done = part.stat().st_size if part.exists() and source.size else 0
    if done and done == source.size:
        return
    if source.size and done > source.size:
        done = 0  # not a part of this file
    request = urllib.request.Request(source.home, headers={"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        if response.status != 206:  # a server without support for ranges sends the whole file
            done = 0
        announced = done + int(response.headers.get("Content-Length") or 0)
        total = source.size or announced
        received = _copy(response, part, "ab" if done else "wb", source.file, total, done)
    if received < total:
        raise DataError(_unreachable(source, f"the connection ended after {received:,} of {total:,} bytes"))


def _copy(response: HTTPResponse, part: Path, mode: str, name: str, total: int, done: int) -> int:
    """Append the response to `part`, and return its new size."""
    with part.open(mode) as out, progress(name, total, unit="bytes", done=done) as advance:
        while chunk := response.read(_CHUNK_BYTES):
            out.write(chunk)
            advance(len(chunk))
            done += len(chunk)
            if total and done > total:
                break  # more than announced: stop here, and let the sha256 check fail
    return done


def _check_part(source: Source, part: Path) -> None:
    try:
        _check_sha256(part, source, "The file has changed at its home, or on the way. The download was discarded.")
    except DataError:
        part.unlink()
        raise


def _check_sha256(path: Path, source: Source, advice: str) -> None:
    found = sha256_of(path)
    if source.sha256 not in (None, found):
        raise DataError(f"{path} has sha256 {found}, expected {source.sha256}. {advice}")


def _explained(source: Source, part: Path, error: OSError) -> DataError | StorageError:
    if error.errno == errno.ENOSPC:
        part.unlink(missing_ok=True)  # free what little space it took
        return StorageError(
            f"the disk of {part.parent} is full: {source.file} does not fit. Free some space, or set "
            f"{CACHE_VARIABLE} to another folder. The cache is unchanged."
        )
    if isinstance(error, urllib.error.URLError | TimeoutError | ConnectionError):
        return DataError(_unreachable(source, str(error)))
    return StorageError(f"cannot write {part}: {error}. Set {CACHE_VARIABLE} to another folder.")


def _unreachable(source: Source, problem: str) -> str:
    return (
        f"cannot download {source.file} from {source.home}: {problem}. Try again to resume, or put the file "
        f"into a folder and set {MIRROR_VARIABLE} to it."
    )
