"""The command line as a person meets it: what it prints, and how it fails."""

import json
import os
import shlex
import subprocess
import sys
from functools import partial

import pytest

import cascader
from cascader.cli import app
from cascader.cli.fit import fit
from cascader.errors import MissingExtraError
from cascader.graph import Entity, KnowledgeGraph, Relation


@pytest.fixture
def triples(tmp_path):
    rows = [f"e{i}\tknows\te{j}" for i in range(8) for j in range(i)]
    (tmp_path / "friends.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "friends.tsv"


def test_version(run):
    assert run("--version") == (0, f"cascader {cascader.__version__}\n", "")


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
def as_after_the_demo(tmp_path_factory):
    """A folder with what `cascader demo` leaves behind, made in seconds: one tier, hardly trained."""
    folder = tmp_path_factory.mktemp("demo")
    try:
        kg = cascader.load_dataset("wordnet")
    except cascader.MissingExtraError as error:
        pytest.skip(str(error))
    cascader.save_run(folder / "runs" / "demo", kg, {"kge": cascader.ComplEx(dim=4, epochs=1).fit(kg)})
    floor = cascader.Frequency().fit(kg)
    cascader.evaluate(floor, kg).save(folder / "runs" / "results" / "wordnet")
    for name in ("frequency", "cascade"):
        cascader.evaluate(floor, kg, name=name).save(folder / "runs" / "demo" / "results")
    return folder


#: They take minutes, or never end; tests of their own run them.
LONG = (["demo"], ["fit"], ["serve"])


@pytest.mark.parametrize("words", [words for words in commands() if words not in LONG], ids=" ".join)
def test_the_example_of_a_command_works_as_it_stands(run, words, as_after_the_demo, monkeypatch):
    monkeypatch.chdir(as_after_the_demo)
    name, *example = example_of(run, words)
    assert (name, example[: len(words)]) == ("cascader", words)
    code, out, err = run(*example)
    assert (code, err) == (0, "")
    assert out


def test_list_shows_all_names(run):
    code, out, _ = run("data", "list")
    assert code == 0
    for name in ("wordnet", "repodb", "codex-s", "codex-m", "fb15k-237", "wn18rr"):
        assert name in out


def test_show_prints_the_counts_home_and_licence(run, mirror):
    code, out, _ = run("data", "show", "repodb")
    assert code == 0
    for text in ("2,748", "5,342", "667", "668", "github", "licence", "2,379 of 2,748 entities have a description"):
        assert text in out


def test_check_counts_and_tells_what_is_odd(run, triples):
    code, out, _ = run("data", "check", triples)
    assert code == 0
    assert "8 of 8 entities have no description" in out
    assert "The graph can be used." in out


def test_convert_writes_a_folder_that_show_reads(run, triples, tmp_path):
    code, out, _ = run("data", "convert", triples, "--to", "parquet", "--out", tmp_path / "out")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "entities.parquet",
        "relations.parquet",
        "test.parquet",
        "train.parquet",
        "valid.parquet",
    ]
    assert run("data", "show", tmp_path / "out")[0] == 0


def test_baseline_writes_an_evaluation_and_compare_reads_two(run, triples, tmp_path):
    for out in ("one", "two"):
        code, printed, _ = run("baseline", triples, "--out", tmp_path / out)
        assert code == 0
        assert "mrr" in printed
    first, second = (tmp_path / out / "friends" / "frequency.json" for out in ("one", "two"))
    code, printed, _ = run("compare", first, second)
    assert code == 0
    assert "+0.0000 [+0.0000, +0.0000]" in printed
    code, printed, _ = run("compare", first, second, "--json")
    assert json.loads(printed)["mrr"]["p_value"] == 1


class TestFit:
    QUICK = ("--set", "epochs=2", "--set", "dim=4")

    def test_a_graph_becomes_a_run_and_a_run_becomes_figures(self, run, triples, tmp_path):
        code, out, _ = run("fit", triples, "--model", "complex", *self.QUICK, "--out", tmp_path / "run")
        assert code == 0
        assert "Trained 2 epochs" in out
        triples.unlink()  # the run needs no other file
        code, out, _ = run("evaluate", tmp_path / "run")
        assert code == 0
        saved = json.loads((tmp_path / "run" / "results" / "kge-complex.json").read_text())
        assert saved["dataset"] == "friends"
        assert not (tmp_path / "run" / "tiers" / "kge" / "checkpoint.safetensors").exists()

    def test_trials_keep_the_best_settings_and_what_was_set_by_hand(self, run, triples, tmp_path):
        options = (*self.QUICK, "--trials", "3", "--out", tmp_path / "run")
        code, out, _ = run("fit", triples, *options)
        assert (code, "(best)" in out) == (0, True)
        trials = json.loads((tmp_path / "run" / "search" / "trials.json").read_text())["trials"]
        saved = json.loads((tmp_path / "run" / "tiers" / "kge" / "model.json").read_text())
        best = max(trials, key=lambda trial: trial["valid_mrr"])
        assert len(trials) == 3
        assert saved["settings"]["dim"] == 4
        assert {name: saved["settings"][name] for name in best["changes"]} == best["changes"]
        assert "is finished already" in run("fit", triples, *options)[1]

    @pytest.mark.parametrize("held_back", [("0", "0"), ("0", "0.2"), ("0.2", "0")])
    def test_a_run_gives_back_a_graph_without_valid_or_test_as_it_was(self, run, triples, tmp_path, held_back):
        shares = ("--valid", held_back[0], "--test", held_back[1])
        for _ in range(2):  # the second call reads the graph that the first has kept
            code, _, err = run("fit", triples, *self.QUICK, *shares, "--out", tmp_path / "run")
            assert (code, err) == (0, "")
        kg = cascader.load_run(tmp_path / "run").kg
        assert [bool(len(kg.valid)), bool(len(kg.test))] == [share != "0" for share in held_back]

    def test_the_same_command_again_does_nothing(self, run, triples, tmp_path):
        for _ in range(2):
            code, out, _ = run("fit", triples, *self.QUICK, "--out", tmp_path / "run")
            assert code == 0
        assert "is finished already" in out

    def test_tiers_are_trained_one_after_the_other_and_measured_alone_and_added_up(self, run, tmp_path, tiny_model):
        rows = [f"abc {a}\tlikes\txyz {b}\n" for a in "abcdefgh" for b in "uvwxyz" if a != b]
        (tmp_path / "likes.tsv").write_text("".join(rows))
        small = ("epochs=2", "dim=4", f"dual.base={tiny_model}", "dual.epochs=2", f"cross.base={tiny_model}")
        small = (*small, "cross.split_layer=1", "cross.rounds=2", "cross.queries_per_round=8", "cross.valid_top_k=3")
        options = [part for setting in small for part in ("--set", setting)]
        folder = tmp_path / "run"
        kge = ("--tiers", "kge", "--set", "epochs=2", "--set", "dim=4")
        assert run("fit", tmp_path / "likes.tsv", *kge, "--out", folder)[0] == 0
        code, out, _ = run("fit", tmp_path / "likes.tsv", "--tiers", "kge,dual,cross", *options, "--out", folder)
        assert code == 0
        assert "tiers/kge is finished already" in "".join(out.split("\n"))
        names = {
            "dual": "dual-contrastive",
            "kge,dual": "kge+dual-complex-contrastive",
            "cross": "cross-listwise",
            "kge,dual,cross": "kge+dual+cross-complex-contrastive-listwise",
            "": "cascade",
        }
        for tiers, name in names.items():
            asked = ("--tiers", tiers) if tiers else ()
            code, out, err = run("evaluate", folder, *asked, "--split", "valid", "--top", "3")
            assert (code, err) == (0, "")
            saved = json.loads((folder / "results" / f"{name}.json").read_text())
            assert saved["about"]
        assert run("evaluate", folder, "--tiers", "kge")[0] == 0
        code, out, _ = run("evaluate", folder, "--pairs", "0", "--name", "cheap")
        assert (code, "Predicted: 0 pairs to read" in out) == (0, True)
        saved = json.loads((folder / "results" / "cheap.json").read_text())["about"]
        assert "cross" not in saved["costs"]
        code, out, _ = run("describe", folder)
        assert code == 0
        assert all(word in out for word in ("kge", "contrastive", "listwise", "parameters", "MB"))

    def test_two_embeddings_become_two_tiers(self, run, triples, tmp_path):
        options = ("--model", "complex,transe", *self.QUICK, "--set", "kge2.dim=4", "--set", "kge2.epochs=1")
        code, out, _ = run("fit", triples, *options, "--out", tmp_path / "run")
        assert (code, "Best on valid" in out) == (0, True)
        assert list(cascader.load_run(tmp_path / "run").tiers) == ["kge", "kge2"]
        code, out, _ = run("evaluate", tmp_path / "run")
        assert (code, "Plan: kge" in out) == (0, True)
        code, _, err = run("fit", triples, "--model", "complex,transe,rotate", "--out", tmp_path / "three")
        assert (code, "names 3 models, expected one or two" in err) == (2, True)

    def test_two_runs_are_added_up(self, run, triples, tmp_path):
        for model in ("complex", "transe"):
            assert run("fit", triples, "--model", model, *self.QUICK, "--out", tmp_path / model)[0] == 0
        code, out, _ = run("evaluate", tmp_path / "complex", "--with", tmp_path / "transe", "--split", "valid")
        assert code == 0
        assert "alpha, the weight of kge against kge of the second run" in out
        assert (tmp_path / "complex" / "results" / "kge+kge-complex-transe.json").exists()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--model", "gpt"], "there is no model 'gpt'. Choose one of: rescal, transe, complex, rotate"),
            (["--preset", "slow"], "complex has no preset 'slow'"),
            (["--tiers", "kge,colbert"], "there is no tier 'colbert'. Choose from: kge, kge2, dual, cross"),
            (["--tiers", "dual"], "friends has no texts"),
            (["--set", "dual.dim=3"], "is for the tier 'dual', but --tiers is kge"),
            (["--set", "dim"], "--set 'dim' has no value"),
            (["--set", "dim=zero"], "dim is 'zero', expected a whole number"),
            (["--set", "colour=red"], "there is no setting 'colour'"),
        ],
    )
    def test_settings_that_cannot_work_exit_with_2(self, run, triples, tmp_path, options, message):
        code, _, err = run("fit", triples, "--out", tmp_path / "run", *options)
        assert code == 2
        assert message in " ".join(err.split())

    def test_a_folder_of_another_graph_or_other_settings_is_left_alone(self, run, triples, tmp_path):
        run("fit", triples, *self.QUICK, "--out", tmp_path / "run")
        code, _, err = run("fit", triples, "--set", "epochs=2", "--set", "dim=5", "--out", tmp_path / "run")
        assert (code, "is finished, with dim 4 and not 5" in err) == (2, True)
        triples.write_text(triples.read_text() + "new\tknows\te1\n")
        code, _, err = run("fit", triples, *self.QUICK, "--out", tmp_path / "run")
        assert (code, "is the run of another graph" in err) == (2, True)

    def test_a_folder_without_a_run(self, run, tmp_path):
        code, _, err = run("evaluate", tmp_path)
        assert (code, "holds no finished run. Make one with: cascader fit" in err) == (2, True)

    def test_a_run_of_a_newer_format(self, run, triples, tmp_path):
        run("fit", triples, *self.QUICK, "--out", tmp_path / "run")
        about = json.loads((tmp_path / "run" / "run.json").read_text())
        (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "format": 99}))
        code, _, err = run("evaluate", tmp_path / "run")
        assert (code, "is a run of format 99, expected 1" in err) == (2, True)


def test_demo_runs_and_says_what_it_did(run, tmp_path, tiny_model, monkeypatch):
    """All of the demo on its own graph, with a tiny language model in the place of the real one."""
    try:
        cascader.load_dataset("wordnet")
    except MissingExtraError as error:
        pytest.skip(str(error))
    small = ["epochs=5", f"dual.base={tiny_model}", "dual.epochs=1", f"cross.base={tiny_model}", "cross.split_layer=1"]
    small += ["cross.rounds=1", "cross.queries_per_round=64", "cross.valid_triples=10", "cross.valid_top_k=3"]
    monkeypatch.setattr("cascader.cli.demo.fit", partial(fit, settings=small))
    code, out, _ = run("demo", "--out", tmp_path)
    assert code == 0
    figures = {path.stem: json.loads(path.read_text())["mrr"] for path in (tmp_path / "results").glob("*.json")}
    assert figures.keys() == {
        "frequency",
        "kge-complex",
        "dual-contrastive",
        "kge+dual-complex-contrastive",
        "cascade",
    }
    assert all(f"{mrr:.4f}" in out for mrr in figures.values())
    assert figures["kge-complex"] > figures["frequency"]
    assert "where test says" in out
    assert (tmp_path / "report" / "report.html").exists()
    assert "Try next: cascader predict" in out


BAD_INPUT = {
    "a missing path": (["data", "check", "nowhere.tsv"], "there is no file or folder nowhere.tsv"),
    "an unknown name": (["data", "show", "freebase"], "there is no file or folder freebase"),
    "a broken file": (["data", "check", "broken.tsv"], "broken.tsv:2: found 2 columns, expected 3"),
    "a share that cannot be": (["data", "check", "friends.tsv", "--test", "2"], "cannot hold back"),
    "no evaluation": (["compare", "friends.tsv", "friends.tsv"], "cannot read friends.tsv.json"),
    "a format we do not write": (
        ["data", "convert", "friends.tsv", "--to", "pickle", "--out", "x"],
        "'pickle' is not one of",
    ),
    "a folder that is there": (
        ["data", "convert", "friends.tsv", "--to", "csv", "--out", "full"],
        "full exists already",
    ),
    "an unknown command": (["fly"], "No such command 'fly'"),
    "the folder one stands in": (["data", "convert", "friends.tsv", "--to", "csv", "--out", "."], "exists already"),
    "a negative seed": (["data", "check", "friends.tsv", "--split-seed", "-1"], "seed is -1"),
    "a name longer than any": (["data", "check", "x" * 300 + ".tsv"], "File name too long"),
    "tables for a benchmark": (["data", "show", "repodb", "--entities", "friends.tsv"], "repodb is a benchmark"),
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


@pytest.mark.parametrize("command", [["data", "list"], ["data", "check", "nowhere→.tsv"]])
def test_a_terminal_that_knows_only_ascii_gets_question_marks(command):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    finished = subprocess.run(
        [sys.executable, "-m", "cascader", *command], env=environment, capture_output=True, text=True
    )
    assert "Traceback" not in finished.stderr


def test_a_folder_that_may_not_be_read_is_bad_input(run, triples, monkeypatch):
    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied", str(triples))

    monkeypatch.setattr("cascader.cli.graphs.read_graph", denied)
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
        return cascader.write_graph(kg, tmp_path / "hostile")

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
