"""Tables of text from TSV, CSV and Parquet, each row with the line it was read from, and the texts that they state."""

import csv
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from cascader.datasets.columns import column_name, text_columns
from cascader.errors import DataError
from cascader.graph import Entity, Relation
from cascader.storage import read_parquet

logger = logging.getLogger(__name__)

#: A longer text is a mistake, such as a quote that is never closed. It is also the limit of the csv module.
MAX_TEXT_CHARACTERS = 131_072
_MAX_LINE_BYTES = 16 * MAX_TEXT_CHARACTERS

#: Whether the first row, in lower case, is a header.
IsHeader = Callable[[tuple[str, ...]], bool]

TABLE_SUFFIXES = (".tsv", ".txt", ".csv", ".parquet")
#: How good a text is: a label derived from an id beats none, an English one beats any other.
FROM_ID, OTHER_LANGUAGE, NO_LANGUAGE, ENGLISH = range(4)

#: What the columns of a table of texts mean if it has no header.
TEXT_ORDER = ("id", "name", "description", "type")


@dataclass(frozen=True)
class Table:
    """Rows of equal width; `header` has the column names in lower case, or is None if the file has no header."""

    label: str
    header: tuple[str, ...] | None
    rows: list[list[str]]
    lines: list[int]  # the line where each row starts
    width: int
    mark: str = ":"  # between the label and the line number

    def where(self, row: int) -> str:
        """The location of a row, for an error message."""
        return f"{self.label}{self.mark}{self.lines[row]}"

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
        raise DataError(f"cannot read {path}: {error}.") from error


def _read_parquet_table(path: Path) -> Table:
    return table_of_columns(str(path), read_parquet(path))


def table_of_columns(label: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    """A table from named columns; those with anything but texts and integers are ignored."""
    texts: dict[str, list[str]] = {}
    for name, values in columns.items():
        other = next((value for value in values if not isinstance(value, str | bytes | int | None)), None)
        if other is None and not any(isinstance(value, bool) for value in values):
            cells = [_cell_text(f"{label}, row {row}", value) for row, value in enumerate(values, start=1)]
            texts[column_name(name)] = cells
        else:
            logger.warning("%s: ignored column %s, which is not text (%r).", label, name, other)
    rows = [list(row) for row in zip(*texts.values(), strict=True)]
    if not rows:
        raise DataError(f"{label} has no rows of text, expected at least one.")
    return Table(label, tuple(texts), rows, list(range(1, len(rows) + 1)), len(texts), ", row ")


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
    lines = list(_decoded_lines(stream, label))
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
            raw = raw.removeprefix(b"\xef\xbb\xbf")
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
    found = f"{len(fields)} column{'' if len(fields) == 1 else 's'}"
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
        return Table(label, None, rows, starts, len(names))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{label}:{starts[0]}: the header has two columns called {twice[0]!r}. Rename one of them.")
    if len(rows) == 1:
        raise DataError(f"{label} has a header but no rows, expected at least one. Add the rows below it.")
    return Table(label, names, rows[1:], starts[1:], len(names))


def write_rows(stream: TextIO, rows: Iterable[Sequence[str]], delimiter: str) -> None:
    """Write rows so that `parse_table` reads the same texts back."""
    plain = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    quoted = csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # The csv module of Python 3.11 leaves a bare carriage return unquoted, and then cannot read it back.
        (quoted if any("\r" in text for text in row) else plain).writerow(row)


@dataclass
class BestTexts:
    """The best text offered so far for each id; the first of equally good ones wins."""

    _texts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def offer(self, id_: str, text: str, quality: int = NO_LANGUAGE) -> None:
        """Keep `text` if it is better than the present one."""
        if text and (id_ not in self._texts or quality > self._texts[id_][0]):
            self._texts[id_] = quality, text

    def ids(self) -> list[str]:
        """The ids that have a text, in the order in which they got their first one."""
        return list(self._texts)

    def of(self, id_: str) -> str:
        """The text of an id, empty if none was offered."""
        return self._texts[id_][1] if id_ in self._texts else ""


@dataclass
class Texts:
    """Everything that files say about ids besides their triples."""

    names: BestTexts = field(default_factory=BestTexts)
    descriptions: BestTexts = field(default_factory=BestTexts)
    types: BestTexts = field(default_factory=BestTexts)

    def add_table(self, table: Table, order: Sequence[str] = TEXT_ORDER) -> list[str]:
        """Add the names, descriptions and types of a table, and return its ids in order.

        Every column but the id may be missing: a table of ids alone says which entities there are. `order` says what
        the columns are if the table has no header.
        """
        columns = _columns(table, order)
        first_row: dict[str, int] = {}
        for row, fields in enumerate(table.rows):
            id_, name, description, type_ = ("" if column is None else fields[column].strip() for column in columns)
            _check_id(table, row, id_, first_row)
            self.names.offer(id_, name)
            self.descriptions.offer(id_, description)
            self.types.offer(id_, type_)
        return list(first_row)

    def entity(self, id_: str) -> Entity:
        """The entity with this id, which is also its name if no file has a better one."""
        return Entity(id_, self.names.of(id_) or id_, self.descriptions.of(id_), self.types.of(id_))

    def relation(self, id_: str) -> Relation:
        """The relation with this id, which is also its name if no file has a better one."""
        return Relation(id_, self.names.of(id_) or id_)


def _check_id(table: Table, row: int, id_: str, first_row: dict[str, int]) -> None:
    if not id_:
        raise DataError(f"{table.where(row)}: the id is empty. Give every row an id, or delete the row.")
    if first_row.setdefault(id_, row) != row:
        raise DataError(
            f"{table.where(row)}: id {id_!r} is already defined at {table.where(first_row[id_])}. "
            "Ids must be unique: delete or rename one of the two."
        )


def _columns(table: Table, order: Sequence[str]) -> list[int | None]:
    """The positions of id, name, description and type."""
    if table.header is None:
        if table.width > len(order):
            raise DataError(
                f"{table.where(0)}: found {table.width} columns, expected at most {len(order)}: {', '.join(order)}. "
                "Add a header to a table with more columns."
            )
        given = order[: table.width]
        return [given.index(role) if role in given else None for role in TEXT_ORDER]
    columns = text_columns(table.header)
    if columns["id"] is None:
        raise DataError(f"{table.label}: the header {', '.join(table.header)} has no id column. Name one of them id.")
    _tell_columns(table.label, table.header, columns)
    return list(columns.values())


def _tell_columns(label: str, header: Sequence[str], columns: Mapping[str, int | None]) -> None:
    """Say which columns were taken for what, and which are not read, unless that goes without saying."""
    named = {role: header[column] for role, column in columns.items() if column is not None}
    unused = [name for column, name in enumerate(header) if column not in columns.values()]
    if unused or any(role != name for role, name in named.items()):
        read = ", ".join(f"{role} is {name}" for role, name in named.items())
        logger.info("%s: %s%s.", label, read, f"; not read: {', '.join(unused)}" if unused else "")
