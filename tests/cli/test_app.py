"""The command line as a person meets it: what it prints, and how it fails."""

import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest

import cascader
from cascader.cli import app
from cascader.graph import Entity, KnowledgeGraph, Relation


def test_version(run):
    assert run("--version") == (0, f"cascader {cascader.__version__}\n", "")


def test_the_first_help_tells_the_extras(run):
    from importlib.metadata import metadata

    _, out, _ = run("--help")
    extras = {*(metadata("cascader").get_all("Provides-Extra") or ())} - {"dev"}
    assert extras
    assert all(extra in out.split("pip install")[1] for extra in extras)


@pytest.mark.parametrize(("typed", "completed"), [("cascader pre", "predict"), ("cascader fit --bu", "--budget")])
def test_a_shell_completes_commands_and_options(typed, completed):
    asked = {"_CASCADER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    code = "import sys; sys.argv = ['cascader']; from cascader.cli import main; main()"
    finished = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    assert finished.stdout.split() == [completed], finished.stderr


def test_the_help_says_how_to_install_completion(run):
    assert "--install-completion" in run("--help")[1]


def commands():
    """Every command by the words that call it."""
    from typer.main import get_command

    def iter_blocks(command, words):
        children = getattr(command, "commands", None)
        if not children:
            yield words
        for name, child in (children or {}).items():
            yield from iter_blocks(child, [*words, name])

    return list(iter_blocks(get_command(app), []))


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_explains_itself_with_an_example(run, words):
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert f"Example: cascader {' '.join(words)}" in " ".join(out.split())


def example_of(run, words):
    """The command that a help text shows: its paragraph behind "Example:"."""
    _, out, _ = run(*words, "--help")
    paragraphs = (" ".join(paragraph.split()) for paragraph in out.split("\n\n"))
    (found,) = (each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: "))
    return shlex.split(found)


@pytest.fixture(scope="module")
def as_after_the_demo(tmp_path_factory, small_wordnet):
    """A folder with what `cascader demo` leaves behind, made in a moment: one tier, hardly trained."""
    folder, kg = tmp_path_factory.mktemp("demo"), small_wordnet
    cascader.save_run(folder / "runs" / "demo", kg, {"kge": cascader.ComplEx(dim=4, epochs=1).fit(kg)})
    others = np.roll(kg.test[:20], 7, axis=0)[:, 2]  # each gets the tail of another
    labels = [(h, r, t, 1) for h, r, t in kg.test[:20]] + [
        (h, r, t, 0) for (h, r, _), t in zip(kg.test[:20], others, strict=True)
    ]
    known = set(map(tuple, kg.triples().tolist()))
    rows = [
        f"{kg.entities[h].id}\t{kg.relations[r].id}\t{kg.entities[t].id}\t{label}\n"
        for h, r, t, label in labels
        if label or (h, r, t) not in known
    ]
    (folder / "labels.tsv").write_text("".join(rows))
    floor = cascader.Frequency().fit(kg)
    cascader.evaluate(floor, kg).save(folder / "runs" / "results" / "wordnet")
    for name in ("frequency", "cascade"):
        cascader.evaluate(floor, kg, name=name).save(folder / "runs" / "demo" / "results")
    return folder


#: They take minutes, or never end; tests of their own run them.
LONG = (["demo"], ["fit"], ["reproduce"], ["serve"])


@pytest.mark.parametrize("words", [words for words in commands() if words not in LONG], ids=" ".join)
def test_the_example_of_a_command_works_as_it_stands(run, words, as_after_the_demo, monkeypatch):
    monkeypatch.chdir(as_after_the_demo)
    name, *example = example_of(run, words)
    assert (name, example[: len(words)]) == ("cascader", words)
    code, out, err = run(*example)
    assert (code, err) == (0, "")
    assert out


BAD_INPUT = {
    "a missing path": (["data", "check", "nowhere.tsv"], "there is no file or folder nowhere.tsv"),
    "an unknown name": (["data", "show", "freebase"], "there is no file or folder freebase"),
    "a broken file": (["data", "check", "broken.tsv"], "broken.tsv:2: found 2 columns, expected 3"),
    "a share that cannot be": (
        ["data", "check", "friends.tsv", "--test", "2"],
        "cannot hold out 0.1 for valid and 2 for test",
    ),
    "no evaluation": (["compare", "friends.tsv", "friends.tsv"], "cannot read friends.tsv.json"),
    "a format we do not write": (
        ["data", "convert", "friends.tsv", "--to", "pickle", "--out", "x"],
        "'pickle' is not one of",
    ),
    "a folder that is there": (
        ["data", "convert", "friends.tsv", "--to", "csv", "--out", "full"],
        "full already exists",
    ),
    "an unknown command": (["fly"], "No such command 'fly'"),
    "the folder one stands in": (["data", "convert", "friends.tsv", "--to", "csv", "--out", "."], "already exists"),
    "a negative seed": (["data", "check", "friends.tsv", "--split-seed", "-1"], "seed is -1"),
    "a name longer than any": (["data", "check", "x" * 300 + ".tsv"], "File name too long"),
    "tables for a benchmark": (
        ["data", "show", "repodb", "--entities", "friends.tsv"],
        "repodb is a graph of the catalog",
    ),
    "a benchmark that cannot be fetched": (["data", "show", "repodb"], "cannot download cascader-repodb.zip"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_a_sentence(case, run, triples, monkeypatch):
    def no_network(*arguments, **options):
        raise ConnectionRefusedError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.chdir(triples.parent)
    (triples.parent / "broken.tsv").write_text("a\tr\tb\na\tr\n")
    (triples.parent / "full").mkdir()
    (triples.parent / "full" / "mine").write_text("")
    arguments, message = BAD_INPUT[case]
    before = sorted(path.name for path in triples.parent.rglob("*"))
    code, _, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert sorted(path.name for path in triples.parent.rglob("*")) == before


def test_the_real_program_fails_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "cascader", "data", "check", "nowhere.tsv"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: there is no file or folder nowhere.tsv")
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["data", "list"], 0, "|wordnet   |        ? |"),
        (["data", "check", "nowhere→.tsv"], 2, "error: there is no file or folder nowhere?.tsv"),
    ],
)
def test_a_terminal_that_knows_only_ascii_gets_question_marks(command, code, words):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    finished = subprocess.run(
        [sys.executable, "-m", "cascader", *command], env=environment, capture_output=True, text=True
    )
    assert (finished.returncode, words in finished.stdout + finished.stderr) == (code, True)
    assert "Traceback" not in finished.stderr


def test_a_folder_that_may_not_be_read_is_bad_input(run, triples, monkeypatch):
    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied", str(triples))

    monkeypatch.setattr("cascader.cli.options.load_graph", denied)
    code, _, err = run("data", "check", triples)
    assert code == 2
    assert "Permission denied" in err


class TestTextsOfAGraph:
    """Whatever stands in a graph is shown as text: no markup, no commands to the terminal."""

    HOSTILE = "[bold]x[/bold] \x1b[31mred\x1b[0m \x07 :smile: \u202egnp.exe"

    @pytest.fixture
    def hostile(self, tmp_path):
        entities = (Entity("a", self.HOSTILE, self.HOSTILE), Entity("b", "B"))
        kg = KnowledgeGraph.from_triples([("a", "r", "b")])
        kg = KnowledgeGraph("g", entities, (Relation("r", self.HOSTILE),), kg.train, kg.valid, kg.test)
        return cascader.save_graph(kg, tmp_path / "hostile")

    def test_in_tables_and_sentences(self, run, hostile):
        code, out, _ = run("data", "show", hostile)
        assert code == 0
        assert "[bold]x[/bold]" in out
        assert ":smile:" in out
        assert not any(character in out for character in "\x1b\x07\u202e")

    def test_in_errors(self, run, tmp_path):
        (tmp_path / "bad.tsv").write_text(f"a\tr\tb\n{self.HOSTILE}\tr\n")
        _, _, err = run("data", "check", tmp_path / "bad.tsv")
        assert "\x1b" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_a_sentence_and_its_exit_code(run, tmp_path, monkeypatch, number, code):
    outside = signal.signal(number, signal.default_int_handler)  # in the background of a shell, SIGINT is ignored
    try:
        monkeypatch.setattr("cascader.runs.load_run", lambda *_, **__: signal.raise_signal(number))
        found, _, err = run("describe", tmp_path)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, outside)
    sentence = "what is finished is kept, and the same command goes on from there."
    assert (found, err) == (code, f"stopped by {number.name}: {sentence}\n")


def test_a_signal_that_a_library_has_made_an_error_of_still_ends_with_its_sentence(run, tmp_path, monkeypatch):
    def interrupted_import(*_, **__):
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            raise AttributeError("partially initialized module")  # noqa: B904 - as extension modules do

    monkeypatch.setattr("cascader.runs.load_run", interrupted_import)
    code, _, err = run("describe", tmp_path)
    assert code == 143
    assert err.startswith("stopped by SIGTERM: ")


def test_a_signal_that_is_ignored_stays_so(run, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr("cascader.runs.load_run", lambda *_, **__: signal.raise_signal(signal.SIGINT))
        with pytest.raises(AttributeError):  # it goes on, without a run
            run("describe", tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
