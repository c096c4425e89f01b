"""Addresses, which are paths or URLs: what lies at a URL is reached through a working copy, by paths like any other."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cascader.errors import CascaderError, SettingsError
from cascader.storage.remote import is_url
from cascader.storage.working_copy import WorkingCopy, path_of_copy, remove_here

#: Of this process. A path that is in none of them is a plain path, and costs nothing.
_COPIES: dict[Path, WorkingCopy] = {}


def local_path(address: str | Path) -> Path:
    """The path of what an address names: the path itself, or the working copy of a URL."""
    if isinstance(address, str) and is_url(address):
        return _copy_for(address).path
    path = Path(address)
    if isinstance(address, Path) and path.parts and path.parts[0] in ("s3:", "gs:", "file:", "memory:"):
        raise SettingsError(f"{path} was a URL before it became a Path, which has no room for //. Give it as text.")
    return path


def _copy_for(url: str) -> WorkingCopy:
    path = path_of_copy(url)
    if path not in _COPIES:
        _COPIES[path] = WorkingCopy(url)
    return _COPIES[path]


def copy_of(path: Path) -> WorkingCopy | None:
    """The working copy that a path is in, if any."""
    if not _COPIES:
        return None
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    return next((_COPIES[root] for root in (absolute, *absolute.parents) if root in _COPIES), None)


def by_address(text: str) -> str:
    """A text in which every path of a working copy is replaced by its URL, which is what the user knows."""
    for root, copy in _COPIES.items():
        text = text.replace(str(root), copy.remote.url)
    return text


@contextmanager
def addressed() -> Iterator[None]:
    """Let errors name the URL, and not the working copy, which nobody has to know of."""
    try:
        yield
    except CascaderError as error:
        error.args = tuple(by_address(each) if isinstance(each, str) else each for each in error.args)
        raise


def refresh(path: Path, without: Sequence[str] = ()) -> None:
    """Bring here what is new at the URL below a path of a working copy; nothing happens to a plain path."""
    copy = copy_of(path)
    if copy is not None:
        copy.pull(path, without)


def present(path: Path) -> Path:
    """Return the path of a file, which is brought here if only the URL has it: another machine has put it there."""
    if not path.exists():
        refresh(path)
    return path


def publish(path: Path) -> None:
    """Put a file to the URL that was written in its place; nothing happens to a plain path."""
    copy = copy_of(path)
    if copy is not None:
        copy.place(path, path)


def is_writable(path: Path) -> bool:
    """Whether files can be written below a folder, which may be at a URL."""
    copy = copy_of(path)
    return os.access(path, os.W_OK) if copy is None else copy.is_writable


def is_there(path: Path) -> bool:
    """Whether a folder exists, where it may be at a URL."""
    copy = copy_of(path)
    return path.exists() if copy is None else copy.has(path)


def remove(path: Path) -> None:
    """Remove a file or a folder, also at its URL if it has one; one that is not there is no error."""
    copy = copy_of(path)
    if copy is None:
        remove_here(path)
    else:
        copy.remove(path)
