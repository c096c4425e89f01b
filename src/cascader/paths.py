"""What a path leads to: only regular files are read, because a FIFO or a device could keep us waiting forever."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from cascader.errors import DataError, StorageError

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def kind_of(mode: int) -> str:
    """What `st_mode` says a path is, in a word: file, folder, link, FIFO, socket or device."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def regular(path: Path) -> Path:
    """Return the path if it leads to a regular file, and refuse anything else before it is opened."""
    kind = kind_of(path.stat().st_mode)
    if kind != "file":
        raise DataError(f"{path} is a {kind}, expected a regular file. Remove it, or name another.")
    return path


def resolved(path: Path) -> Path:
    """The absolute path behind all links; one that leads back to itself is refused.

    `Path.resolve` raises a RuntimeError for such a link before Python 3.13, and returns it since.
    """
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise StorageError(f"{path} is a link that leads back to itself. Remove it, or name another place.")
    return found


def check_regular(folder: Path) -> None:
    """Refuse a folder with a FIFO, a socket or a device in it, or a link that leads out of it.

    Reading a FIFO would wait forever, and writing to such a link would change a file elsewhere.
    """
    root = resolved(folder)
    for entry in entries_of(folder):
        path = Path(entry.path)
        try:
            kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
            if kind == "link":
                _check_link(path, root)
            elif kind not in ("file", "folder"):
                raise DataError(f"{path} is a {kind}, expected nothing but files. Remove it: no run has one.")
        except FileNotFoundError:  # the temporary file of another process
            continue


def _check_link(link: Path, root: Path) -> None:
    if not link.exists() or not link.resolve().is_relative_to(root):
        raise DataError(
            f"{link} is a link to {link.readlink()}, which is not in {root}. Replace it by the file that it stands "
            "for, or remove it."
        )


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files and folders below a folder; no link is followed, and what vanishes meanwhile was never there."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue


def copy_files(source: Path, target: Path) -> None:
    """Copy all files below a folder except hidden ones into another; they get the mode that new files have here."""
    for entry in entries_of(source):
        copy = target / Path(entry.path).relative_to(source)
        if entry.is_file() and not entry.name.startswith("."):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry.path, copy)
