"""Read and write files safely: each is written under a temporary name, then renamed into place when complete."""

import glob
import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError, StorageError
from cascader.paths import entries_of, regular

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
#: The file of a folder that `locked` locks. Its first byte is blank: Windows lets no one else read what is locked.
LOCK = ".lock"
#: The environment variable that names another cache folder.
CACHE_VARIABLE = "CASCADER_CACHE"
_ABANDONED_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """The cache folder of this machine, or the one that CASCADER_CACHE names."""
    from platformdirs import user_cache_path

    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else user_cache_path("cascader")


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
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, and rename it to `path` if the block succeeds."""
    path = path.resolve()
    with _explained(path):
        if path.exists() and (path == Path.cwd() or not path.is_dir() or any(path.iterdir())):
            raise StorageError(f"{path} already exists. Choose another folder, or remove it first.")
        temporary = _temporary_path(path)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            if path.is_dir():
                path.rmdir()
            temporary.replace(path)
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
            if path.exists():
                path.replace(old)
            temporary.replace(path)
        finally:
            for folder in (temporary, old):
                shutil.rmtree(folder, ignore_errors=True)


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
        raise StorageError(f"cannot write {path}: {reason}. Existing files are unchanged.") from error


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

    The lock ends with the process, however that ends: a stale one never has to be removed.
    """
    from filelock import FileLock, Timeout

    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, fallback_to_soft=False, on_acquired=_write_holder)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            logger.info("%s is in use by %s: waiting until it is done.", folder, _holder(folder / LOCK))
            lock.acquire()
    try:
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON, atomically; NaN is an error because JSON does not have it."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a number that neither a float nor 64 bits can hold is an error."""
    try:
        text = regular(path).read_text(encoding="utf-8")
        content = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise DataError(f"{path} is not JSON: {error}. Run the command that wrote it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} contains a JSON {type(content).__name__}, expected an object.")
    return content


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text[:20]}… is too large")
    return number


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as a safetensors file, atomically."""
    from safetensors.torch import save_file

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as temporary:
        save_file(contiguous, temporary, None if metadata is None else dict(metadata))


def read_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Read the tensors of a safetensors file by name, and its metadata."""
    from safetensors import safe_open

    with _readable(path), safe_open(regular(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of the tensors of a safetensors file by name, and none of their values."""
    from safetensors import safe_open

    with _readable(path), safe_open(regular(path), framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays as a safetensors file, atomically; the same arrays always give the same bytes."""
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, save(contiguous))


def read_arrays(path: Path, sha256: str | None = None) -> dict[str, Array]:
    """Read the arrays of a safetensors file by name; if `sha256` is given, the file must match it."""
    from safetensors.numpy import load

    with _readable(path):
        content = regular(path).read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"its {len(content):,} bytes do not match the checksum")
        return load(content)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the errors of a safetensors file that cannot be read into a DataError."""
    from safetensors import SafetensorError

    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}. Delete it, and run the command that wrote it again.") from error


def read_npy(path: Path) -> Array:
    """Read the array of a .npy file; one that needs pickle is refused."""
    try:
        return np.load(regular(path), allow_pickle=False)  # noqa: TID251 - the one place that may
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}. Expected a .npy file without pickled objects.") from error


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length (arrays or lists) as a Parquet file, atomically."""
    import pyarrow
    import pyarrow.parquet

    with atomic_file(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), temporary, compression="zstd")


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """Read a Parquet file as columns of Python values."""
    import pyarrow
    import pyarrow.parquet

    try:
        with regular(path).open("rb") as file:
            table = pyarrow.parquet.ParquetFile(file).read()
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        if twice:
            raise DataError(f"{path} has two columns called {twice[0]!r}. Rename one of them.")
        return {name: table.column(name).to_pylist() for name in table.column_names}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or ' '.join(str(error).split())}.") from error
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split()).removesuffix(".")
        raise DataError(f"{path} is not a Parquet file: {reason}. Write it again, or convert it to TSV.") from error


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
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
