"""The files of a run, read like a stranger's: JSON with a schema and its own sum, and the sums of all other files."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

from annotated_types import Ge, Interval, Len, Predicate

from cascader.errors import CascaderError, DataError, StorageError
from cascader.paths import entries_of
from cascader.storage import locked, publish, read_bytes, read_json, refresh, sha256_of, write_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Record = TypeVar("Record")


def is_tier_name(name: str) -> bool:
    """Whether a tier can have this name, which is also the name of its folder: letters, digits, _ and -.

    >>> is_tier_name("kge2"), is_tier_name("../kge"), is_tier_name("kge+dual")
    (True, False, False)
    """
    return name[:1].isalnum() and name.replace("-", "_").replace("_", "x").isalnum() and len(name) <= _LONGEST_NAME


def is_sha256(text: str) -> bool:
    """Whether a text is a sha256 in hexadecimal."""
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


_LONGEST_NAME = 100
#: Types for the fields of a schema. They are checked when a file is read, and cost nothing otherwise.
Count = Annotated[int, Ge(0)]
Seconds = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Name = Annotated[str, Len(min_length=1)]
TierName = Annotated[str, Predicate(is_tier_name)]
Sha256 = Annotated[str, Predicate(is_sha256)]
_SUM = "sha256"


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object together with its own sha256, atomically: no kill can part the two."""
    write_json(path, {**content, _SUM: _sum_of(content)})


def read_record(path: Path, schema: type[Record], form: int, advice: str, *, has_sum: bool = True) -> Record:
    """Read a JSON object that must have this format, the sum that `write_record` gave it, and the types of `schema`.

    `schema` is a dataclass. `advice` is the sentence that says what to do about a file that is damaged.
    """
    content = read_json(path)
    if content.get("format") != form:
        raise DataError(
            f"{path} has format {content.get('format')!r}, expected {form}. It was written by another version of "
            f"cascader: use that one. {advice}"
        )
    if has_sum:
        check_sum(path, {_SUM: None, **content}, advice)
    return conforming(content, schema, path, advice)


def check_sum(path: Path, content: Mapping[str, Any], advice: str) -> None:
    """Refuse what was read from a file if it has a sum, but not that which `write_record` gave it."""
    if _SUM in content and content[_SUM] != _sum_of({key: value for key, value in content.items() if key != _SUM}):
        raise DataError(f"{path} is not as it was written: its content does not match the sha256 in it. {advice}")


def _sum_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def conforming(content: Mapping[str, Any], schema: type[Record], path: Path, advice: str) -> Record:
    """Build a value of `schema` from JSON, or say what was found where, what was expected, and the advice."""
    from pydantic import ValidationError

    try:
        # As JSON, because a list must become a tuple, and the name of a field a number, but a text never a number.
        with naming(path, advice):  # a value that checks itself
            return _adapter(schema).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        if first["type"] == "missing":
            raise DataError(f"{path} has no {where}. {advice}") from error
        raise DataError(f"{path} has {where} {_shown(first['input'])}; {_expected(first['msg'])}. {advice}") from error


def _expected(message: str) -> str:
    """Put what pydantic says into our words: Predicate 'is_tier_name' failed means that a tier name was expected."""
    by_name = re.fullmatch(r"Predicate '_?is_(\w+)' failed", message)
    if by_name:
        return f"expected a {by_name[1].replace('_', ' ')}"
    return re.sub(r"^\w+ should (be|have)", "expected", message)


@contextmanager
def naming(path: Path, advice: str) -> Iterator[None]:
    """Say of which file an error is, and what to do about it, while a value is built from what the file has."""
    try:
        yield
    except CascaderError as error:
        raise DataError(f"{path} is damaged: {error} {advice}") from error


_ADAPTERS: "dict[type, TypeAdapter[Any]]" = {}


def _adapter(schema: type[Record]) -> "TypeAdapter[Record]":
    from pydantic import TypeAdapter  # imported late: a hundred milliseconds, for nothing if no run is read

    if schema not in _ADAPTERS:
        _ADAPTERS[schema] = TypeAdapter(schema)
    return _ADAPTERS[schema]


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


# Files that grow.


def append_records(path: Path, contents: Sequence[Mapping[str, Any]]) -> None:
    """Append JSON objects to a file, a line with its own sha256 for each; other processes that do so wait.

    A line that a kill has cut short is replaced: whoever wrote it was never told that it is there.
    """
    lines = "".join(json.dumps({**content, _SUM: _sum_of(content)}, ensure_ascii=False) + "\n" for content in contents)
    with locked(path.parent):
        refresh(path)  # another machine may have written to the same URL
        try:
            with path.open("r+b" if path.exists() else "w+b") as file:
                end = _end_of_last_line(file.read())
                _replace_from(file, end, lines.encode())
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}. What it had is unchanged.") from error
        publish(path)


def _replace_from(file: BinaryIO, end: int, lines: bytes) -> None:
    """Write lines at the end, all or none, and wait until the disk has them."""
    try:
        file.seek(end)
        file.write(lines)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def _end_of_last_line(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def read_records(path: Path, schema: type[Record], advice: str) -> list[Record]:
    """Read what `append_records` has written, each line with the types of `schema`; a last one cut short is no line."""
    if not path.exists():
        return []
    content = read_bytes(path)
    lines = content[: _end_of_last_line(content)].split(b"\n")[:-1]
    return [_read_line(line, Path(f"{path}:{number}"), schema, advice) for number, line in enumerate(lines, start=1)]


def _read_line(line: bytes, where: Path, schema: type[Record], advice: str) -> Record:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}. {advice}") from error
    if not isinstance(content, dict):
        raise DataError(f"{where} is a JSON {type(content).__name__}, expected an object. {advice}")
    if content.pop(_SUM, None) != _sum_of(content):
        raise DataError(f"{where} is not as it was written: it does not match the sha256 in it. {advice}")
    return conforming(content, schema, where, advice)


# The sums of files.


@dataclass(frozen=True)
class FileSum:
    """What a file of a run must be: so many bytes with this sha256."""

    bytes: Count
    sha256: Sha256


def sums_of(folder: Path, without: tuple[str, ...] = ()) -> dict[str, FileSum]:
    """The sums of all files below a folder by relative name, except hidden ones and those in `without`."""
    found = {}
    for path in sorted(Path(entry.path) for entry in entries_of(folder)):
        if path.is_file() and not path.name.startswith(".") and path.name not in without:
            found[path.relative_to(folder).as_posix()] = FileSum(path.stat().st_size, sha256_of(path))
    return found


def check_sums(folder: Path, found: Mapping[str, FileSum], expected: Mapping[str, FileSum], advice: str) -> None:
    """Compare the files of a folder with what was written down of them, and name the first that differs."""
    for name, wanted in expected.items():
        here = found.get(name)
        if here is None:
            raise DataError(f"{folder / name} is missing. {advice}")
        if here != wanted:
            size = (
                f"{here.bytes:,} bytes" if here.bytes == wanted.bytes else f"{here.bytes:,} of {wanted.bytes:,} bytes"
            )
            raise DataError(
                f"{folder / name} is damaged: its {size} have the sha256 {here.sha256[:12]}, expected "
                f"{wanted.sha256[:12]}. {advice}"
            )
    more = [name for name in found if name not in expected]
    if more:
        raise DataError(f"{folder / more[0]} is not among the files of this run. Remove it. {advice}")
