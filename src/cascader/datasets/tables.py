"""Tables of text from TSV, CSV and Parquet: columns that hold each text once, and the line that each row was read from.

A plain file is read by a fast parser. Whatever that cannot read, or might read otherwise, is read line by line.
"""

import csv
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TextIO

import numpy as np

from cascader.datasets.columns import Column, column_name, id_space
from cascader.errors import DataError
from cascader.storage import CodedTexts, parquet_columns, separated_columns
from cascader.wording import counted

logger = logging.getLogger(__name__)

#: A longer text is a mistake, such as a quote that is never closed. It is also the limit of the csv module.
MAX_TEXT_CHARACTERS = 131_072
_MAX_LINE_BYTES = 16 * MAX_TEXT_CHARACTERS

#: Whether the first row, in lower case, is a header.
IsHeader = Callable[[tuple[str, ...]], bool]

TABLE_SUFFIXES = (".tsv", ".txt", ".csv", ".parquet")
_BOM = b"\xef\xbb\xbf"
#: Of a header in a message: names, and letters of each.
_MOST_SHOWN, _LONGEST_SHOWN = 20, 40


@dataclass(frozen=True)
class Table:
    """Rows of equal width; `header` has the column names in lower case, or is None if the file has no header."""

    label: str
    header: tuple[str, ...] | None
    columns: tuple[Column, ...]
    lines: Sequence[int]  # the line where each row starts
    mark: str = ":"  # between the label and the line number
    is_frame: bool = False  # whether it came from Python, where options are arguments
    spaces: tuple[str, ...] = ()  # of Neo4j's ids, one for each column, empty in most; none without a header

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    @property
    def rows(self) -> list[list[str]]:
        """All rows, for tables that are small."""
        return [list(row) for row in zip(*(column.values() for column in self.columns), strict=True)]

    @property
    def first(self) -> list[str]:
        """The first row."""
        return [column[0] for column in self.columns]

    def where(self, row: int) -> str:
        """The location of a row, for an error message."""
        return f"{self.label}{self.mark}{self.lines[row]}"

    def choice(self, *names: str) -> str:
        """How to say which columns are head, relation and tail, where this table came from."""
        return f"columns=({', '.join(map(repr, names))})" if self.is_frame else f"--columns {','.join(names)}"

    @property
    def shown_header(self) -> str:
        """The names of the columns for a message, cut where they are long."""
        names = [name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…" for name in self.header or ()]
        return ", ".join([*names[:_MOST_SHOWN], "…"] if len(names) > _MOST_SHOWN else names)

    def column(self, names: Sequence[str]) -> int | None:
        """The position of the column with the first of these names that the header has."""
        if self.header is None:
            return None
        return next((self.header.index(name) for name in names if name in self.header), None)


def read_table(path: Path, is_header: IsHeader) -> Table:
    """Read a table in the format of its suffix; `is_header` recognizes a first row of column names."""
    if path.suffix.lower() == ".parquet":
        return _read_parquet_table(path)
    try:
        with path.open("rb") as stream:
            return parse_table(stream, str(path), is_header)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error


def _read_parquet_table(path: Path) -> Table:
    return table_of_columns(str(path), parquet_columns(path))


def table_of_columns(label: str, columns: Mapping[str, Sequence[Any] | CodedTexts], *, is_frame: bool = False) -> Table:
    """A table from named columns; those with anything but texts and integers are ignored."""
    found: dict[str, Column] = {}
    for name, values in columns.items():
        column = _checked_texts(label, values) if isinstance(values, CodedTexts) else _texts_of(label, name, values)
        if column is not None:
            found[column_name(name)] = column
    count = len(next(iter(found.values()), ()))
    if not count:
        raise DataError(f"{label} has no rows of text, expected at least one.")
    return Table(label, tuple(found), tuple(found.values()), range(1, count + 1), ", row ", is_frame)


def _checked_texts(label: str, coded: CodedTexts) -> Column:
    column = Column(*coded)
    if _has_long_text(column) or "\0" in "".join(column.texts):
        for row in np.sort(column.first_rows()).tolist():
            check_text(f"{label}, row {row + 1}", column[row])
    return column


def _texts_of(label: str, name: str, values: Sequence[Any]) -> Column | None:
    """A column of values of any type as texts; None if it has anything but texts and integers."""
    other = next((value for value in values if not isinstance(value, str | bytes | int | None)), None)
    if other is None and not any(isinstance(value, bool) for value in values):
        return Column.of(_cell_text(f"{label}, row {row}", value) for row, value in enumerate(values, start=1))
    logger.warning("%s: ignored column %s, which is not text (%r).", label, name, other)
    return None


def _cell_text(where: str, value: str | bytes | int | None) -> str:
    try:
        text = value.decode() if isinstance(value, bytes) else "" if value is None else str(value)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: found bytes that are not UTF-8, expected text. Write the column as strings."
        ) from error
    check_text(where, text)
    return text


def parse_table(stream: IO[bytes], label: str, is_header: IsHeader) -> Table:
    """Read UTF-8 text delimited by tabs, or by commas or semicolons for .csv; fields may be quoted."""
    first = stream.readline(_MAX_LINE_BYTES)
    next(_decoded_lines(io.BytesIO(first), label), None)  # a binary file is refused before all of it is read
    content = first + stream.read()
    return _plain_table(content, label, is_header) or parse_with_care(content, label, is_header)


def _plain_table(content: bytes, label: str, is_header: IsHeader) -> Table | None:
    """The table of a file that every parser reads alike; None if there may be quotes, blank lines or errors."""
    content = content.removeprefix(_BOM)
    is_csv = label.lower().endswith(".csv")
    if _needs_care(content, is_csv):
        return None
    first = content.partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    delimiter = max(",;\t", key=first.count) if is_csv else "\t"
    fields = first.split(delimiter)
    names = tuple(map(column_name, fields))
    skipped = int(is_header(names))
    columns = [Column(*coded) for coded in separated_columns(content, delimiter, len(fields), skipped) or ()]
    row_count = content.count(b"\n") + (not content.endswith(b"\n")) - skipped
    is_plain = columns and 0 < len(columns[0]) == row_count and (len(columns) > 1 or not is_csv)
    if not is_plain or (skipped and len(set(names)) < len(names)) or any(map(_has_long_text, columns)):
        return None
    lines = range(1 + skipped, 1 + skipped + row_count)
    if not skipped:
        return Table(label, None, tuple(columns), lines)
    return Table(label, names, tuple(columns), lines, spaces=tuple(map(id_space, fields)))


def _needs_care(content: bytes, is_csv: bool) -> bool:
    """Whether there are quotes that may matter, NUL bytes, other line ends than usual, or a second byte order mark."""
    quotes = (b'"',) if is_csv else (b'\t"', b'\n"')
    has_quotes = content.startswith(b'"') or any(quote in content for quote in quotes)
    has_odd_ends = content.count(b"\r") != content.count(b"\r\n")
    return has_quotes or has_odd_ends or b"\0" in content or content.startswith(_BOM)  # Arrow would take it off


def _has_long_text(column: Column) -> bool:
    return max(map(len, column.texts), default=0) > MAX_TEXT_CHARACTERS


def parse_with_care(content: bytes, label: str, is_header: IsHeader) -> Table:
    """Read a table line by line, whatever quotes it has, so that an error names its line."""
    lines = list(_decoded_lines(io.BytesIO(content), label))
    if not lines:
        raise DataError(f"{label} is empty, expected rows of text.")
    rows, starts = _parse_csv(lines, label) if label.lower().endswith(".csv") else _parse_tabs(lines, label)
    return _with_header(label, rows, starts, is_header)


def _decoded_lines(stream: IO[bytes], label: str) -> Iterator[str]:
    """Decode line by line, so that errors can name the line."""
    for number, raw in enumerate(iter(lambda: stream.readline(_MAX_LINE_BYTES), b""), start=1):
        where = f"{label}:{number}"
        if number == 1:
            _check_not_utf16(raw, label)
            raw = raw.removeprefix(_BOM)
        if b"\0" in raw:
            raise DataError(f"{where}: found a NUL byte, expected text. Is this a binary file? Save it as UTF-8 text.")
        if len(raw) >= _MAX_LINE_BYTES:
            raise DataError(f"{where}: the line is longer than {_MAX_LINE_BYTES:,} bytes. Shorten its texts.")
        try:
            yield raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8, for instance with: "
                "iconv -f latin1 -t utf-8"
            ) from error


def _check_not_utf16(raw: bytes, label: str) -> None:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{label} is UTF-16, expected UTF-8. Convert it, for instance with: iconv -f utf-16 -t utf-8")


def _parse_csv(lines: list[str], label: str) -> tuple[list[list[str]], list[int]]:
    """Try commas, semicolons and tabs until one yields rows of equal width with several columns."""
    problem: DataError | None = None
    for delimiter in sorted(",;\t", key=lambda d: -lines[0].count(d)):
        try:
            rows, starts = _parse(lines, label, delimiter, csv.QUOTE_MINIMAL)
            if not rows or len(rows[0]) > 1:
                return rows, starts
        except DataError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return rows, starts


def _parse_tabs(lines: list[str], label: str) -> tuple[list[list[str]], list[int]]:
    """Read quoted fields if the quotes are balanced; otherwise treat quotes as ordinary characters.

    Spreadsheets quote a field and double the quotes in it, while plain TSV writes 5" disk: a strict parser tells them
    apart. Two stray quotes may still look like one field of several lines, but then those lines are rows themselves.
    """
    if not any(line.startswith('"') or '\t"' in line for line in lines):
        return _parse(lines, label, "\t", csv.QUOTE_NONE)
    try:
        quoted = _parse(lines, label, "\t", csv.QUOTE_MINIMAL)
    except DataError as error:
        quoted, problem = None, error
    if quoted and len(quoted[0]) == sum(not line.isspace() for line in lines):
        return quoted
    try:
        return _parse(lines, label, "\t", csv.QUOTE_NONE)
    except DataError:
        if quoted is None:
            raise problem from None
        return quoted


def _parse(
    lines: Iterable[str], label: str, delimiter: str, quoting: Literal[0, 3]
) -> tuple[list[list[str]], list[int]]:
    """Rows of equal width, and the line where each starts; csv itself refuses texts that are too long."""
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    rows: list[list[str]] = []
    starts: list[int] = []
    start = 1
    try:
        for fields in reader:
            if fields:  # a blank line has none
                if rows and len(fields) != len(rows[0]):
                    raise DataError(_other_width(f"{label}:{start}", fields, len(rows[0])))
                rows.append(fields)
                starts.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(_csv_message(f"{label}:{start}", str(error))) from error
    return rows, starts


def _other_width(where: str, fields: list[str], width: int) -> str:
    found = counted(len(fields), "column")
    return (
        f"{where}: found {found}, expected {width} as in the first row. The row starts with {fields[0][:40]!r}. "
        "Complete or delete the row; a text that contains the separator must be in quotes."
    )


def _csv_message(where: str, problem: str) -> str:
    if "field limit" in problem:
        return _too_long(where)
    if "new-line" in problem:
        return f"{where}: found a bare carriage return. Save the file with Unix or Windows line endings."
    return f"{where}: {problem}. A field that starts with a quote must end with one; double any quotes inside it."


def check_text(where: str, text: str) -> None:
    """Refuse texts that are too long or contain a NUL byte."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise DataError(_too_long(where, len(text)))
    if "\0" in text:
        raise DataError(f"{where}: found a NUL byte, expected text. Remove it.")


def _too_long(where: str, length: int | None = None) -> str:
    found = f"a text of {length:,} characters" if length else "a text"
    return f"{where}: found {found} above the limit of {MAX_TEXT_CHARACTERS:,}. Shorten it, or close its quote."


def _with_header(label: str, rows: list[list[str]], starts: list[int], is_header: IsHeader) -> Table:
    if not rows:
        raise DataError(f"{label} has only blank lines, expected rows of text.")
    names = tuple(column_name(name) for name in rows[0])
    if not is_header(names):
        return Table(label, None, _columns_of(rows), starts)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{label}:{starts[0]}: the header has two columns called {twice[0]!r}. Rename one of them.")
    if len(rows) == 1:
        raise DataError(f"{label} has a header but no rows, expected at least one. Add the rows below it.")
    return Table(label, names, _columns_of(rows[1:]), starts[1:], spaces=tuple(map(id_space, rows[0])))


def _columns_of(rows: list[list[str]]) -> tuple[Column, ...]:
    return tuple(Column.of(values) for values in zip(*rows, strict=True))


def write_rows(stream: TextIO, rows: Iterable[Sequence[str]], delimiter: str) -> None:
    """Write rows so that `parse_table` reads the same texts back."""
    plain = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    quoted = csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # The csv module of Python 3.11 leaves a bare carriage return unquoted, and then cannot read it back.
        (quoted if any("\r" in text for text in row) else plain).writerow(row)
