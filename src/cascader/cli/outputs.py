"""Output formats for answers: a table for people, and files for programs."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cascader.errors import SettingsError
from cascader.storage import write_parquet, write_text

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


def chosen_format(wanted: OutputFormat | None, out: Path | None) -> OutputFormat:
    """Choose the requested format, or the one that the file's name ends in, or a table."""
    if wanted is None and out is None:
        return "table"
    if wanted is None:
        wanted = next((each for each in _FILE_FORMATS if out is not None and out.suffix.lower() == f".{each}"), None)
    if wanted is None:
        raise SettingsError(
            f"--out {out} does not end in a known format. Add --format, one of: {', '.join(_FILE_FORMATS)}."
        )
    if wanted == "table" and out is not None:
        raise SettingsError(f"a table is for the screen. For a file, choose one of: {', '.join(_FILE_FORMATS)}.")
    if wanted == "parquet" and out is None:
        raise SettingsError("Parquet is a binary format, so it needs a file. Name one with --out.")
    return wanted


def write_rows_as(
    rows: Sequence[Mapping[str, Any]], triples: Sequence[tuple[str, str, str]], form: OutputFormat, out: Path | None
) -> None:
    """Write rows to a file in a format for programs, or print them; N-Triples has only the `triples`."""
    if form == "parquet":
        assert out is not None  # noqa: S101 - chosen_format ensures it
        write_parquet(out, {name: [row[name] for row in rows] for name in (rows[0] if rows else ())})
        return
    text = _as_text(rows, triples, form)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


def _as_text(rows: Sequence[Mapping[str, Any]], triples: Sequence[tuple[str, str, str]], form: OutputFormat) -> str:
    if form == "nt":
        from cascader.datasets.rdf import ntriples

        return ntriples(dict.fromkeys(triples))
    if form == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    from cascader.datasets.tables import write_rows

    stream = io.StringIO()
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    write_rows(stream, table, _DELIMITERS[form])
    return stream.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return str(value)
