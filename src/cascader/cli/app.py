"""The commands, and what they share: logging, error messages and exit codes."""

import io
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

import cascader
from cascader.cli import data, demo, evaluate, fit, predict, review, views
from cascader.cli.console import echo, echo_error, echo_table
from cascader.display import Event, listening
from cascader.errors import CascaderError

app = typer.Typer(
    name="cascader",
    help="Complete a knowledge graph: ask (aspirin, treats, ?) and get every entity ranked.",
    epilog="Start with: cascader demo. A run is a folder that `cascader fit` wrote; a tier is one of the models in "
    "it, and its cascade asks them one after the other. Train, valid and test are the triples that models learn from, "
    "that settings are chosen on, and that figures are measured on. Some commands need extras, as in pip install "
    "'cascader[demo,serve]': demo (the WordNet graph), serve (the page), onnx (eight bits), hpo (--trials), s3 (runs "
    "in buckets), pandas, networkx, pykeen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.command()(fit.fit)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(predict.classify)
app.command()(review.review)
app.command()(views.describe)
app.command()(views.report)
app.command()(views.serve)
app.command()(evaluate.baseline)
# \b keeps an example on one line, so that it can be copied.
app.command(
    epilog="\b\nExample: cascader compare runs/demo/results/frequency.json runs/demo/results/cascade.json\n\n"
    "`cascader demo` makes both."
)(evaluate.compare)
app.command()(evaluate.table)
app.command()(fit.reproduce)
app.command()(demo.demo)

#: The exit code for bad input; 1 is for our bugs.
BAD_INPUT = 2
#: What a shell adds to the number of the signal that ended a command: 130 for SIGINT, 143 for SIGTERM.
ENDED_BY_SIGNAL = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cascader {cascader.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Complete a knowledge graph: ask (aspirin, treats, ?) and get every entity ranked."""


class _OneLine(logging.Handler):
    """Prints each log record as one line on standard error, without control characters."""

    def emit(self, record: logging.LogRecord) -> None:
        echo_error(f"note: {record.getMessage()}")


def _print(event: Event) -> None:
    """Print an event of a long call."""
    echo(event.text)
    if event.rows:
        echo_table(event.columns, event.rows)


class _Stopped(BaseException):
    """A signal has asked the command to end. Not an Exception: nothing on the way may take it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _stopping_at_signals() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise `_Stopped`, so that nothing half done is left behind; a second one ends at once.

    A signal that is ignored, as in the background of a shell, stays so.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    before = {each: signal.getsignal(each) for each in _SIGNALS if is_main}
    heard = [each for each, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, _: object) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
        raise _Stopped(number)

    for each in heard:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in heard:
            signal.signal(each, before[each])


def main() -> None:
    """Run the command line; errors that the user can correct are printed in one line, with exit code 2."""
    logging.basicConfig(level=logging.INFO, handlers=[_OneLine()])
    for library in ("aiobotocore", "botocore"):
        logging.getLogger(library).setLevel(logging.WARNING)  # where it has found credentials is no news to the user
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows a question mark instead of crashing
    try:
        with _stopping_at_signals(), listening(_print):
            app()
    except _Stopped as stopped:
        name = signal.Signals(stopped.number).name
        echo_error(f"stopped by {name}: what is finished is kept, and the same command goes on from there.")
        sys.exit(ENDED_BY_SIGNAL + stopped.number)
    except CascaderError as error:
        echo_error(f"error: {error}")
        sys.exit(BAD_INPUT)
    except OSError as error:  # a path that is too long, a folder without read permission, a full disk
        echo_error(f"error: {error.strerror or error}: {error.filename or 'standard output'}")
        sys.exit(BAD_INPUT)
