"""The commands, and what they share: logging, error messages and exit codes."""

import io
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import cascader
from cascader.cli import data, demo, evaluate, fit, predict, review, views
from cascader.cli.console import echo, echo_error, echo_table
from cascader.cli.options import Clock, command_line
from cascader.display import Event, Listener, LogFormat, listening, log_line, log_to, no_progress
from cascader.errors import CascaderError, SettingsError

app = typer.Typer(
    name="cascader",
    help="Complete a knowledge graph: ask (aspirin, treats, ?) and get every entity ranked.",
    epilog="Start with: cascader demo. A run is a folder that `cascader fit` wrote; a tier is one of the models in "
    "it, and its cascade asks them one after the other. Models learn from train, settings are chosen on "
    "valid, figures are measured on test. Some commands need extras, as in pip install "
    "'cascader[demo,serve]': demo (the WordNet graph), serve (the page), onnx (eight bits), hpo (--trials), ray "
    "(clusters), s3 (runs in buckets), pandas, networkx, pykeen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.command()(fit.fit)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(predict.classify)
app.command()(review.calibrate)
app.command()(review.review)
app.command()(views.describe)
app.command()(views.report)
app.command()(views.serve)
app.command()(evaluate.merge)
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
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print all settings and every validation.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="Append the full log to this file, even with -q.")
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format", help="text, or json: one object per line, on standard error if there is no --log-file."
        ),
    ] = "text",
) -> None:
    """Complete a knowledge graph: ask (aspirin, treats, ?) and get every entity ranked."""
    if quiet and verbose:
        raise SettingsError("--quiet and --verbose exclude each other. Give one of them.")
    if quiet:
        context.with_resource(no_progress())
    printing = _print_json if log_format == "json" and log_file is None else _print_text
    listeners: list[Listener] = [] if quiet else [printing if verbose else _without_details(printing)]
    if log_file is not None:
        listeners.append(log_to(log_file, log_format))
        listeners[-1](Event("started", command_line()))  # a file that cannot be written is an error now, not later
    for listener in listeners or [_ignore]:
        context.with_resource(listening(listener))
    _notes.listeners = tuple(listeners)


#: What may stand before the command and behind it, and which of these have a value.
_GLOBAL = {"-v": False, "--verbose": False, "-q": False, "--quiet": False, "--log-file": True, "--log-format": True}


def _global_first(arguments: Sequence[str]) -> list[str]:
    """Put the options that all commands share before the command, wherever they were typed."""
    first: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*first, *others, argument, *rest]
        name, equals, _ = argument.partition("=")
        if name not in _GLOBAL or (equals and not _GLOBAL[name]):
            others.append(argument)
        else:
            value = next(rest, None) if _GLOBAL[name] and not equals else None
            first += [argument] if value is None else [argument, value]
    return [*first, *others]


class _Notes(logging.Handler):
    """Passes each log record on as an event; before the options are read, and of warnings, prints it."""

    listeners: tuple[Listener, ...] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        event = Event("note", record.getMessage())
        if self.listeners is None or (not self.listeners and record.levelno >= logging.WARNING):
            _print_text(event)
        for listener in self.listeners or ():
            listener(event)


_notes = _Notes()


def _print_text(event: Event) -> None:
    """Print an event of a long call; notes and lines of progress do not mix with what a command prints."""
    if event.kind in ("note", "progress"):
        echo_error(f"note: {event.text}" if event.kind == "note" else event.text)
        return
    echo(event.text)
    if event.rows:
        echo_table(event.columns, event.rows)


def _print_json(event: Event) -> None:
    echo_error(log_line(event, "json"))


def _without_details(listener: Listener) -> Listener:
    return lambda event: None if event.is_detail else listener(event)


def _ignore(event: Event) -> None:
    """Hear nothing: where nobody listens, events are logged."""


class _Stopped(BaseException):
    """A signal has asked the command to end. Not an Exception: nothing on the way may take it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _stopping_at_signals() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise `_Stopped`, so that nothing half done is left behind; a second one ends at once.

    A signal that is ignored, as in the background of a shell, stays so. Some libraries turn an interrupted import into
    an error of their own: after a signal, that is no error of the command.
    """
    stopped: list[_Stopped] = []
    is_main = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    before = {each: signal.getsignal(each) for each in _SIGNALS if is_main}
    heard = [each for each, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, _: object) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
        stopped.append(_Stopped(number))
        raise stopped[0]

    for each in heard:
        signal.signal(each, stop)
    try:
        yield
    except Exception as error:
        if stopped:
            raise stopped[0] from error
        raise
    finally:
        for each in heard:
            signal.signal(each, before[each])


def main() -> None:
    """Run the command line; errors that the user can correct are printed in one line, with exit code 2."""
    Clock.started, _notes.listeners = time.monotonic(), None
    logging.basicConfig(level=logging.INFO, handlers=[_notes])
    for library in ("aiobotocore", "botocore"):
        logging.getLogger(library).setLevel(logging.WARNING)  # where it has found credentials is no news to the user
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows a question mark instead of crashing
    try:
        with _stopping_at_signals():
            app(_global_first(sys.argv[1:]))
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
