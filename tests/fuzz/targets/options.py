"""Every option of every command with values that nobody meant: numbers without bounds, texts, missing files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from cascader.cli import app
from tests.fuzz.case import CommandLine
from tests.fuzz.material import Material
from tests.fuzz.mutations import argument_texts, mostly
from tests.fuzz.targets.questions import OnRun

_NUMBERS = ("0", "1", "2", "-1", "0.5", "1.5", "nan", "inf", "-inf", "1e999", "1e-999", "9" * 19, "9" * 25, "9" * 5000)
_NUMBERS += ("\u0663", "\u00b2", "0x10", "1_0", " 3 ", "+3", "", "3,5", "two")
_WORDS = (
    "head",
    "tail",
    "train",
    "valid",
    "test",
    "strict",
    "alpha",
    "paper",
    "tuned",
    "tsv",
    "csv",
    "jsonl",
    "parquet",
)
_WORDS += (
    "nt",
    "table",
    "turtle",
    "quick",
    "best",
    "kge,cross",
    "1s",
    "0s",
    "-1s",
    "1e9h",
    "1.5m",
    "m",
    "\u0661s",
    "nan s",
)
_WORDS += ("infs", "9" * 400 + "s")
_ADDRESSES = ("127.0.0.1", "::1", "0.0.0.0", "::", "")  # noqa: S104
_OUTS = (
    "out",
    "out/deep/er",
    "out.tsv",
    "out.parquet",
    "out.xyz",
    "graph.tsv",
    "run",
    ".",
    "",
    "graph.tsv/x",
    "o" * 300,
)
_PATHS = ("run", "graph.tsv", "graph", "entities.tsv", "nowhere", "", ".", "/dev/null", "run/results/cascade.json")
_PATHS += ("run/run.json", "results", "run/results/frequency.json", "run/graph/test.parquet")
_SETTINGS = ("dim", "epochs", "learning_rate", "seed", "loss", "batch_size", "kge.dim", "dual.dim", "nope", "", "kge.")
#: Commands that train, or never end, whatever they are given: they only plan, or do not begin to serve.
_ONLY_PLANNED = ("fit", "reproduce")
_LEFT_OUT = ("demo",)
_REQUIRED = {"to": "csv", "out": "converted"}
_FITTING = {
    "run": "run",
    "graph": "graph.tsv",
    "entity": "e0",
    "relation": "of",
    "file": "run/graph/test.parquet",
    "first": "run/results/cascade.json",
    "second": "run/results/frequency.json",
}
_FILES = {
    "graph.tsv": "".join(f"e{a}\tknows\te{b}\n" for a in range(8) for b in range(a)).encode(),
    "entities.tsv": "".join(f"e{a}\tname {a}\ta text of {a}\n" for a in range(8)).encode(),
}


@dataclass(frozen=True)
class _Options(OnRun):
    """A command line whose server, if it starts one, ends at once."""

    def perform(self, folder: Path) -> str:
        """Run the command."""
        planning = patch("cascader.models.training._SECONDS_TIMED", 0.01)
        with planning, patch("uvicorn.Server.run", lambda *given, **options: None):
            return super().perform(folder)


def cases(material: Material) -> st.SearchStrategy[CommandLine]:
    """Draw a command and some of its options."""
    found = [(words, command) for words, command in _commands(get_command(app)) if words[0] not in _LEFT_OUT]
    return st.one_of([_lines(words, command, material) for words, command in found])


def _commands(group: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


@st.composite
def _lines(draw: st.DrawFn, words: tuple[str, ...], command: TyperCommand, material: Material) -> CommandLine:
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption)]
    line = list(words)
    for option in draw(st.lists(st.sampled_from(options), max_size=4, unique_by=id)) if options else ():
        name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        line.append(name if option.is_flag else f"{name}={draw(_values(option.name or '', material))}")
    if draw(st.integers(0, 5)):
        line += [f"{each.opts[0]}={_REQUIRED[each.name or '']}" for each in options if each.required]
    if words[0] in _ONLY_PLANNED:
        line.append("--dry-run")
    return _Options((*line, "--", *(draw(_arguments(each.name or "")) for each in arguments)), _FILES, material)


def _arguments(name: str) -> st.SearchStrategy[str]:
    """What stands for an argument: mostly what it should be."""
    return mostly(st.just(_FITTING.get(name, "run")), st.one_of(st.sampled_from(_PATHS), argument_texts()))


def _values(option: str, material: Material) -> st.SearchStrategy[str]:
    """What stands for the value of an option: one of all that options take, of any kind."""
    numbers = st.one_of(st.sampled_from(_NUMBERS), st.integers(-3, 300).map(str))
    match option:
        case "out":
            return st.sampled_from(_OUTS)
        case "host":
            return st.sampled_from(_ADDRESSES)
        case "processes":  # as many are started as are asked for
            return st.sampled_from(["1", "0", "-1", "nan", "\u0661", ""])
        case "settings":
            return st.builds("{}={}".format, st.sampled_from(_SETTINGS), st.one_of(numbers, argument_texts()))
        case "tiers" | "model":
            names = st.lists(st.sampled_from([*material.tiers, "rotate", "late", "frequency", "", "x"]), max_size=3)
            return st.one_of(names.map(",".join), argument_texts())
    return st.one_of(numbers, st.sampled_from(_WORDS), st.sampled_from(_PATHS), argument_texts())
