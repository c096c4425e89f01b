"""Print texts as they are, never as markup or terminal commands, and write answers in formats for programs."""

import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cascader.errors import SettingsError, StorageError
from cascader.paths import resolved
from cascader.storage import by_address, write_parquet, write_text

OutputFormat = Literal["table", "tsv", "csv", "jsonl", "parquet", "nt"]
FormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format", help="table, or for programs: tsv, csv, jsonl, parquet, nt. [default: by the ending of --out]"
    ),
]
OutFileOption = Annotated[Path | None, typer.Option("--out", help="The file to write. [default: standard output]")]
_FILE_FORMATS: tuple[OutputFormat, ...] = ("tsv", "csv", "jsonl", "parquet", "nt")
_DELIMITERS = {"tsv": "\t", "csv": ","}
_PIPED_WIDTH = 160


def _console(to_stderr: bool) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(stderr=to_stderr, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)


_output = _console(to_stderr=False)
_errors = _console(to_stderr=True)


def echo(sentence: str) -> None:
    """Print a line on standard output."""
    _output.print(printable(sentence))


def echo_error(sentence: str) -> None:
    """Print a line on standard error."""
    _errors.print(printable(sentence))


def printable(text: str) -> str:
    """Replace control characters with spaces, so that none can control the terminal, and working copies with URLs."""
    return "".join(character if character.isprintable() else " " for character in by_address(text))


def echo_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """Print a plain table; the columns named in `numbers` are right-aligned."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(printable(column), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _output.print(table)


def shortened(text: str, length: int = 60) -> str:
    """Shorten a text to at most `length` characters."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def chosen_format(
    wanted: OutputFormat | None, out: Path | None, *, option: str = "--out", advice: str = "Add --format"
) -> OutputFormat:
    """Choose the requested format, or the one that the file's name ends in, or a table.

    `option` is what named the file, and `advice` what to do if its name ends in no format.
    """
    if wanted is None and out is None:
        return "table"
    if wanted is None:
        wanted = next((each for each in _FILE_FORMATS if out is not None and out.suffix.lower() == f".{each}"), None)
    if wanted is None:
        raise SettingsError(
            f"{option} {out} does not end in a known format. {advice}, one of: {', '.join(_FILE_FORMATS)}."
        )
    if wanted == "table" and out is not None:
        raise SettingsError(f"a table is for the screen. For a file, choose one of: {', '.join(_FILE_FORMATS)}.")
    if wanted == "parquet" and out is None:
        raise SettingsError("Parquet is a binary format, so it needs a file. Name one with --out.")
    return wanted


def write_rows_as(
    rows: Sequence[Mapping[str, Any]],
    triples: Sequence[tuple[str, str, str]],
    form: OutputFormat,
    out: Path | None,
    columns: Sequence[str],
) -> None:
    """Write rows to a file in a format for programs, or print them; N-Triples has only the `triples`.

    The header is `columns`, so that a table without rows has one.
    """
    if form == "parquet":
        assert out is not None  # noqa: S101 - chosen_format ensures it
        table = {name: [row[name] for row in rows] for name in columns}
        _write_to(out, lambda path: write_parquet(path, table))
        return
    text = _as_text(rows, triples, form, columns)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write_to(out, lambda path: write_text(path, text))


def _write_to(out: Path, write: Callable[[Path], None]) -> None:
    """Write the user's file: one that a link leads to stays behind the link, and what is no file is written into."""
    stream = _standard_stream(out)
    if stream is None and (out.is_file() or not out.exists()):
        target = resolved(out) if out.is_symlink() else out
        if not target.parent.is_dir():
            raise StorageError(f"cannot write {out}: there is no folder {target.parent}. Make it first.")
        write(target)
        return
    if out.is_dir():
        raise StorageError(f"cannot write {out}: it is a folder. Name a file in it.")
    with TemporaryDirectory() as folder:
        write(Path(folder) / "output")
        try:
            with out.open("wb") if stream is None else os.fdopen(os.dup(stream), "wb") as into:
                into.write((Path(folder) / "output").read_bytes())
        except OSError as error:  # an error of writing does not name the file
            raise StorageError(f"cannot write {out}: {error.strerror or error}.") from error


def _standard_stream(out: Path) -> int | None:
    """Our own output or error stream, if that is what a path such as /dev/stdout leads to, whatever it is."""
    sys.stdout.flush()
    for descriptor in (1, 2):
        with suppress(OSError):  # there is no such file yet, or no such stream
            if os.path.samestat(out.stat(), os.fstat(descriptor)):
                return descriptor
    return None


def _as_text(
    rows: Sequence[Mapping[str, Any]],
    triples: Sequence[tuple[str, str, str]],
    form: OutputFormat,
    columns: Sequence[str],
) -> str:
    if form == "nt":
        from cascader.datasets.rdf import ntriples

        return ntriples(dict.fromkeys(triples))
    if form == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    from cascader.datasets.tables import write_rows

    stream = io.StringIO()
    table = ([_cell(row[name]) for name in columns] for row in rows)
    write_rows(stream, [columns, *table], _DELIMITERS[form])
    return stream.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return str(value)
