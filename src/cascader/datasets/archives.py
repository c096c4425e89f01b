"""Unpack archives safely: only into the given folder, and only up to a plausible size."""

import errno
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from cascader.errors import DataError, StorageError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")

#: A graph of a hundred million triples fits; a decompression bomb does not.
MAX_UNPACKED_BYTES = 16 << 30
MAX_MEMBERS = 100_000
#: Text shrinks to a tenth, sorted triples to a fiftieth; bombs to a thousandth and less.
MAX_RATIO = 200
_ALWAYS_FINE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20

# zipfile raises the last four for archives that are encrypted, damaged, or use unsupported names or compression.
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    KeyError,
)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack every file of `archive` below `folder`, which exists and is empty."""
    with _explained(archive):
        for name, source in _files(archive):
            target = _target(archive, folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                while chunk := source.read(_CHUNK_BYTES):
                    out.write(chunk)


def read_members(archive: Path, members: Sequence[str] | None = None) -> dict[str, bytes]:
    """The contents of some or all files of an archive, by name, without unpacking it to disk."""
    with _explained(archive):
        found = {name: source.read() for name, source in _files(archive) if members is None or name in members}
    missing = [member for member in members or () if member not in found]
    if missing:
        raise DataError(f"{archive} has no {missing[0]}. Delete the archive to download it again.")
    return found


def read_gzip(path: Path) -> bytes:
    """The content of a single file that is compressed with gzip, with the same limit as an archive."""
    with _explained(path), gzip.open(path) as source:
        return _Counted(cast("IO[bytes]", source), _Budget(path)).read()


@contextmanager
def _explained(archive: Path) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StorageError(
                f"the disk for temporary files has no room for {archive}. Free some space, or set TMPDIR."
            ) from error
        problem = str(error).split(":\n")[0][:200]  # tarfile then lists every format it tried
        raise DataError(f"cannot unpack {archive}: {problem}. Is it a complete .zip or .tar.gz file?") from error


def _files(archive: Path) -> Iterator[tuple[str, "_Counted"]]:
    """The regular files of an archive, with a limit on what comes out of it."""
    budget = _Budget(archive)
    return _zip_files(archive, budget) if zipfile.is_zipfile(archive) else _tar_files(archive, budget)


def _zip_files(archive: Path, budget: "_Budget") -> Iterator[tuple[str, "_Counted"]]:
    with zipfile.ZipFile(archive) as file:
        budget.add_members(len(file.infolist()))  # before any is written
        for info in file.infolist():
            is_link = (info.external_attr >> 16) & 0o170000 == 0o120000
            _check_name(archive, info.filename, is_plain=not is_link)
            if not info.is_dir():
                with file.open(info) as source:
                    yield info.filename, _Counted(source, budget)


def _tar_files(archive: Path, budget: "_Budget") -> Iterator[tuple[str, "_Counted"]]:
    first = _Budget(archive)
    with _tar(archive, first) as file:
        for _ in _members(archive, file, first):  # what is refused is refused before any is written
            pass
    with _tar(archive, budget) as file:
        for info in _members(archive, file, budget):
            source = file.extractfile(info) if info.isfile() else None
            if source is not None:
                # Already counted as part of the stream.
                yield info.name, _Counted(source, None)


@contextmanager
def _tar(archive: Path, budget: "_Budget") -> Iterator[tarfile.TarFile]:
    """Read as a stream and count every byte, because the headers of a tar file can be bombs, too."""
    with archive.open("rb") as raw:
        is_zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        content: IO[bytes] = gzip.GzipFile(fileobj=raw) if is_zipped else raw  # type: ignore[assignment]
        stream: Any = _Counted(content, budget)  # read() is all that tarfile needs
        with tarfile.open(fileobj=stream, mode="r|") as file:
            yield file


def _members(archive: Path, file: tarfile.TarFile, budget: "_Budget") -> Iterator[tarfile.TarInfo]:
    for info in file:
        budget.add_members(1)
        _check_name(archive, info.name, is_plain=info.isfile() or info.isdir())
        yield info


class _Budget:
    """Limits what comes out of an archive, regardless of the sizes that it states."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._members = 0
        self._bytes = 0
        by_ratio = max(MAX_RATIO * archive.stat().st_size, _ALWAYS_FINE_BYTES)
        self._limit = min(by_ratio, MAX_UNPACKED_BYTES)

    def add_members(self, count: int) -> None:
        self._members += count
        if self._members > MAX_MEMBERS:
            raise DataError(
                f"{self._archive} has more than {MAX_MEMBERS:,} files. Unpack it yourself and give the folder instead."
            )

    def add_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self._limit:
            raise DataError(
                f"{self._archive} unpacks to more than {self._limit:,} bytes, {MAX_RATIO} times its size: it looks "
                "like a decompression bomb. If you trust it, unpack it yourself and give the folder instead."
            )


class _Counted:
    """A stream that counts what is read from it against a budget."""

    def __init__(self, source: IO[bytes], budget: _Budget | None) -> None:
        self._source = source
        self._budget = budget

    def read(self, size: int = -1) -> bytes:
        chunks = []
        while size != 0 and (chunk := self._source.read(min(size, _CHUNK_BYTES) if size > 0 else _CHUNK_BYTES)):
            if self._budget is not None:
                self._budget.add_bytes(len(chunk))
            chunks.append(chunk)
            size -= len(chunk) if size > 0 else 0
        return b"".join(chunks)


def _check_name(archive: Path, name: str, is_plain: bool) -> None:
    """Accept only regular files and folders inside the folder that they are unpacked into."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if not name:
        raise DataError(f"{archive} has a file without a name. Unpack it yourself, and give the folder instead.")
    if not is_plain:
        raise DataError(f"{archive}: {name[:100]!r} is a link or a device, expected regular files. Unpack it yourself.")
    if parts.is_absolute() or ".." in parts.parts or ":" in name.split("/")[0]:
        raise DataError(f"{archive}: {name[:100]!r} points outside its folder. Do not trust this archive.")


def _target(archive: Path, folder: Path, name: str) -> Path:
    target = folder.joinpath(*PurePosixPath(name.replace("\\", "/")).parts)
    if target.exists():
        raise DataError(f"{archive} contains {name[:100]!r} twice. Unpack it yourself, and keep the right one.")
    return target
