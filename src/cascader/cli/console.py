"""Print to the terminal, showing the texts of a graph as they are and never as markup or terminal commands."""

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    """Replace every control character with a space, so that none can control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


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
