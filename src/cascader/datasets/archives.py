"""Archives are unpacked into an empty folder, and never beyond it."""

import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from cascader.errors import DataError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")

#: A graph of a hundred million triples fits; a decompression bomb does not.
MAX_UNPACKED_BYTES = 16 << 30
MAX_MEMBERS = 100_000
#: Text shrinks to a tenth, sorted triples to a fiftieth; bombs to a thousandth and less.
MAX_RATIO = 200
_ALWAYS_FINE_BYTES = 64 << 20

# zipfile raises the last two for archives that are encrypted or compressed in a way it does not know.
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack every file of `archive` below `folder`, which exists and is empty."""
    budget = _Budget(archive)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder, budget)
        else:
            _unpack_tar(archive, folder, budget)
    except _BROKEN as error:
        problem = str(error).split(":\n")[0]  # tarfile goes on to list every format it tried
        raise DataError(f"cannot unpack {archive}: {problem}. Is it a whole .zip or .tar.gz file?") from error


def read_members(archive: Path, members: Sequence[str]) -> dict[str, bytes]:
    """Some files of an archive whose sha256 is known to be right, without unpacking the others."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                return {member: zipped.read(member) for member in members}
        with tarfile.open(archive) as tarred:
            opened = {member: tarred.extractfile(member) for member in members}
            return {member: file.read() for member, file in opened.items() if file is not None}
    except (KeyError, *_BROKEN) as error:
        raise DataError(f"cannot read {archive}: {error}. Delete the file to have it fetched anew.") from error


class _Budget:
    """Counts what comes out of an archive, since what it says of its own size cannot be trusted."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._members = 0
        self._bytes = 0
        by_ratio = max(MAX_RATIO * archive.stat().st_size, _ALWAYS_FINE_BYTES)
        self._limit = min(by_ratio, MAX_UNPACKED_BYTES)

    def add_member(self) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise DataError(
                f"{self._archive} holds more than {MAX_MEMBERS:,} files. Unpack it yourself and name the folder."
            )

    def copy(self, source: IO[bytes], target: IO[bytes]) -> None:
        while chunk := source.read(1 << 20):
            self._bytes += len(chunk)
            if self._bytes > self._limit:
                raise DataError(
                    f"{self._archive} unpacks to more than {self._limit:,} bytes, {MAX_RATIO} times its size: it looks "
                    "like a decompression bomb. If you trust it, unpack it yourself and name the folder."
                )
            target.write(chunk)


def _unpack_zip(archive: Path, folder: Path, budget: _Budget) -> None:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            is_link = (info.external_attr >> 16) & 0o170000 == 0o120000
            target = _target(archive, folder, info.filename, is_plain=not is_link)
            budget.add_member()
            if not info.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(info) as source, target.open("xb") as out:
                    budget.copy(source, out)


def _unpack_tar(archive: Path, folder: Path, budget: _Budget) -> None:
    with tarfile.open(archive) as file:
        for info in file:
            target = _target(archive, folder, info.name, is_plain=info.isfile() or info.isdir())
            budget.add_member()
            source = file.extractfile(info) if info.isfile() else None
            if source is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("xb") as out:
                    budget.copy(source, out)


def _target(archive: Path, folder: Path, name: str, is_plain: bool) -> Path:
    """Where a member goes; only plain files and folders below `folder` are taken."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if not is_plain:
        raise DataError(f"{archive}: {name!r} is a link or a device, expected plain files. Nothing was unpacked.")
    if parts.is_absolute() or ".." in parts.parts or ":" in name.split("/")[0]:
        raise DataError(
            f"{archive}: {name!r} points outside its folder. Nothing was unpacked; do not trust this archive."
        )
    return folder.joinpath(*parts.parts)
