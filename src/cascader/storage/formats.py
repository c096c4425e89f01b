"""Read and write JSON, tensors, arrays and tables: what is damaged or would need pickle is refused."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cascader.errors import DataError
from cascader.paths import regular
from cascader.storage.files import atomic_file, write_bytes, write_text

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, DataType, StringArray
    from pyarrow.parquet import FileMetaData, RowGroupMetaData
    from torch import Tensor

Array = NDArray[Any]
Found = TypeVar("Found")
#: Sorted triples have up to 5 values in a byte of a Parquet file, and those of a complete grid 25; a bomb has hundreds.
_VALUES_PER_BYTE = 10
#: Five million triples, however few bytes they take up.
_ALWAYS_FINE_VALUES = 1 << 24
#: As of archives: tables shrink to a twentieth.
_MAX_RATIO = 200
_ALWAYS_FINE_BYTES = 64 << 20


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON, atomically; NaN is an error because JSON does not have it."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a number that neither a float nor 64 bits can hold is an error."""
    try:
        content = json_value(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise DataError(f"{path} is not JSON: {error}. Run the command that wrote it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} contains a JSON {type(content).__name__}, expected an object.")
    return content


def json_value(text: str) -> object:
    """Parse JSON as `read_json` does; what is none is a ValueError or, if nested too deeply, a RecursionError."""
    return json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)


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
    """Write named tensors as a safetensors file, atomically; on whatever device they are, the bytes are the same."""
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
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


class CodedTexts(NamedTuple):
    """A column of text: its distinct texts, and the place of each row's text among them."""

    texts: list[str]
    codes: Array  # (rows,) int32

    def values(self) -> list[str]:
        """The text of every row."""
        return [self.texts[code] for code in self.codes.tolist()]

    def array(self) -> "StringArray":
        """The text of every row, outside of Python's memory."""
        import pyarrow

        return pyarrow.array(self.texts, pyarrow.string()).take(pyarrow.array(self.codes))


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length (arrays, lists or coded texts) as a Parquet file, atomically."""
    import pyarrow
    import pyarrow.parquet

    decoded = {name: each.array() if isinstance(each, CodedTexts) else each for name, each in columns.items()}
    with atomic_file(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(decoded), temporary, compression="zstd")


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """Read a Parquet file as columns of Python values."""
    return _read_parquet(path, _values)


def parquet_columns(path: Path) -> dict[str, CodedTexts | list[Any]]:
    """Read a Parquet file as columns of texts, empty where there is none, and of other Python values."""
    return _read_parquet(path, _coded_or_values)


def _read_parquet(path: Path, values: "Callable[[ChunkedArray], Found]") -> dict[str, Found]:
    """Read the columns of a Parquet file but for nested ones; a text that many rows have is in memory once."""
    import pyarrow
    import pyarrow.parquet

    try:
        with regular(path).open("rb") as file:
            about = pyarrow.parquet.ParquetFile(file)
            _check_expansion(path, about.metadata)
            fields = [field for field in about.schema_arrow if not pyarrow.types.is_nested(field.type)]
            twice = [name for name, count in Counter(about.schema_arrow.names).items() if count > 1]
            if twice:
                raise DataError(f"{path} has two columns called {twice[0]!r}. Rename one of them.")
            texts = [field.name for field in fields if field.type in _texts()]
            table = pyarrow.parquet.ParquetFile(file, read_dictionary=texts).read([field.name for field in fields])
        table.validate(full=True)  # a code may be out of its dictionary
        return {name: values(table.column(name)) for name in table.column_names}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or ' '.join(str(error).split())}.") from error
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split()).removesuffix(".")
        raise DataError(f"{path} is not a Parquet file: {reason}. Write it again, or convert it to TSV.") from error


def _check_expansion(path: Path, about: "FileMetaData") -> None:
    """Refuse a file whose rows would take up far more than it does: equal ones take up nothing, but in memory."""
    groups = [about.row_group(place) for place in range(about.num_row_groups)]
    values = sum(max(group.num_rows, _most_values(group)) * about.num_columns for group in groups)
    unpacked = sum(group.total_byte_size for group in groups)
    size = path.stat().st_size
    for count, what, ratio, always_fine in (
        (values, "values", _VALUES_PER_BYTE, _ALWAYS_FINE_VALUES),
        (unpacked, "uncompressed bytes", _MAX_RATIO, _ALWAYS_FINE_BYTES),
    ):
        if count > max(ratio * size, always_fine):
            raise DataError(
                f"{path} has {count:,} {what} in {size:,} bytes, expected at most {ratio} in each: it looks like a "
                "decompression bomb. If you trust it, convert it to TSV."
            )


def _most_values(group: "RowGroupMetaData") -> int:
    return max((group.column(place).num_values for place in range(group.num_columns)), default=0)


def _texts() -> "tuple[DataType, ...]":
    import pyarrow

    return pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()


def _values(column: "ChunkedArray") -> list[Any]:
    """The value of every row; equal texts are one object."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        return column.to_pylist()
    whole = column.unify_dictionaries().combine_chunks()
    values = [*whole.dictionary.to_pylist(), None]
    return [values[-1 if code is None else code] for code in whole.indices.to_pylist()]


def _coded_or_values(column: "ChunkedArray") -> CodedTexts | list[Any]:
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        return _values(column)
    if kind is column.type:
        return _coded(column.fill_null(""))
    whole = column.unify_dictionaries().combine_chunks()
    texts = pyarrow.concat_arrays([whole.dictionary, pyarrow.array([""], kind)])
    places = whole.indices.cast(pyarrow.int32()).fill_null(len(texts) - 1).dictionary_encode()
    found = _coded(pyarrow.chunked_array([texts.take(places.dictionary)]))  # in the order in which they are met
    return CodedTexts(found.texts, found.codes[places.indices.to_numpy()])


def separated_columns(content: bytes, delimiter: str, width: int, skipped_rows: int = 0) -> list[CodedTexts] | None:
    """The columns of plain UTF-8 text without quotes; None if its rows are not all of this width, or cannot be read."""
    import pyarrow
    from pyarrow import csv

    names = [str(place) for place in range(width)]
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(content),
            read_options=csv.ReadOptions(column_names=names, skip_rows=skipped_rows),
            parse_options=csv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        )
        return [_coded(table.column(name)) for name in names]
    except pyarrow.ArrowException:
        return None


def _coded(column: "ChunkedArray") -> CodedTexts:
    encoded = column.dictionary_encode().combine_chunks()
    return CodedTexts(encoded.dictionary.to_pylist(), encoded.indices.to_numpy())
