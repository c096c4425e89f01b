"""`cascader predict` and `cascader classify` as a person meets them."""

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas
import pytest

import cascader
from cascader.runs import LabelGain
from cascader.storage import read_parquet
from tests.cli.conftest import call_once, setting_options
from tests.processes import command, finished

HOSTILE = "[bold]pain[/bold] \x1b[31mred"


def print_into(path, *words):
    """Run a command line whose standard output is a file that already holds something."""
    descriptor = os.open(path, os.O_WRONLY)
    os.lseek(descriptor, 0, os.SEEK_END)
    os.dup2(descriptor, 1)
    command(*words)


def fitted(folder, *options, settings=("epochs=5", "dim=8")):
    """A run of a graph in which drugs treat diseases, one of them with a hostile name, and two share a name."""
    rows = [f"d{a}\ttreats\tx{b}\n" for a in range(8) for b in range(8) if (a * b) % 3 != 1]
    (folder / "drugs.tsv").write_text("".join(rows))
    names = [("d0", "aspirin"), ("d1", "ibuprofen"), ("x0", HOSTILE), ("x1", "fever"), ("x2", "fever")]
    named = [f"{id_}\t{name}\n" for id_, name in names]
    others = [f"{id_}\t{id_}\n" for kind in "dx" for id_ in (f"{kind}{i}" for i in range(8)) if id_ not in dict(names)]
    (folder / "names.tsv").write_text("id\tname\n" + "".join(named + others))
    arguments = ["fit", folder / "drugs.tsv", "--entities", folder / "names.tsv", "--tiers", "kge", *options]
    call_once(*arguments, *setting_options(settings), "--out", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def drugs(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("drugs"))


def test_fit_calibrates_and_predict_answers_by_name(run, drugs):
    assert (drugs / "calibration.json").exists()
    code, out, err = run("predict", drugs, "Aspirin", "treats", "--top", "3", "--known")
    assert (code, err) == (0, "")
    assert "(aspirin, treats, ?)" in out
    assert all(word in out for word in ("rank", "name", "id", "probability", "after kge", "%"))


def test_without_a_tier_that_gives_reasons_why_has_the_ranks(run, drugs):
    code, out, _ = run("predict", drugs, "aspirin", "treats", "--top", "1", "--known", "--why")
    assert code == 0
    assert "   rank 1 after kge (counts for 100 %)" in out


@pytest.fixture(scope="module")
def structural(tmp_path_factory):
    """A run of the tiers that give reasons."""
    return fitted(tmp_path_factory.mktemp("structural"), "--tiers", "plausibility,rules,similarity", settings=())


def test_why_says_it_in_words_a_few_lines_for_each_answer(run, structural):
    code, out, _ = run("predict", structural, "aspirin", "treats", "--top", "3", "--known", "--why")
    assert code == 0
    assert "\x1b" not in out
    reasons = out[out.index("1. ") :].splitlines()
    heads = [line for line in reasons if not line.startswith("   ")]
    assert [head.split(". ")[0] for head in heads] == ["1", "2", "3"]
    assert len(reasons) <= 3 * 9
    assert any(line.startswith(("   rules", "   similarity")) for line in reasons)
    assert sum(line.startswith("   rank ") for line in reasons) == 3


def test_why_in_json_has_the_facts_by_id_and_name(run, structural):
    _, out, _ = run("predict", structural, "aspirin", "treats", "--top", "3", "--known", "--why", "--format", "jsonl")
    told = [reason for line in out.splitlines() for reason in json.loads(line)["why"]["reasons"]]
    facts = [fact for reason in told for fact in reason["facts"]]
    assert {reason["tier"] for reason in told} & {"rules", "similarity"}
    assert facts
    assert all(fact["relation"] == {"id": "treats", "name": "treats"} for fact in facts)
    assert {"id": "d0", "name": "aspirin"} in [fact["head"] for fact in facts]


def test_head_questions_ask_for_heads(run, drugs):
    code, out, _ = run("predict", drugs, "x1", "treats", "--side", "head", "--format", "jsonl", "--known")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {row["tail"] for row in rows} == {"x1"}
    assert len(rows) == 10


def test_texts_of_a_graph_are_no_markup_and_no_commands(run, drugs):
    code, out, _ = run("predict", drugs, "aspirin", "treats", "--top", "16", "--known", "--why")
    assert code == 0
    assert "[bold]pain[/bold]" in out
    assert "\x1b" not in out


def test_every_format_says_the_same(run, drugs, tmp_path):
    asked = ("predict", drugs, "d1", "treats", "--top", "4", "--known", "--why")
    _, jsonl, _ = run(*asked, "--format", "jsonl")
    rows = [json.loads(line) for line in jsonl.splitlines()]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    for suffix, delimiter in (("tsv", "\t"), ("csv", ",")):
        assert run(*asked, "--out", tmp_path / f"a.{suffix}")[0] == 0
        header, *lines = (tmp_path / f"a.{suffix}").read_text().splitlines()
        assert header.split(delimiter) == list(rows[0])
        assert [line.split(delimiter)[:3] for line in lines] == [[r["head"], r["relation"], r["tail"]] for r in rows]
    assert run(*asked, "--out", tmp_path / "a.parquet")[0] == 0
    assert read_parquet(tmp_path / "a.parquet")["tail"] == [row["tail"] for row in rows]
    assert run(*asked, "--out", tmp_path / "a.nt")[0] == 0
    links = (tmp_path / "a.nt").read_text().splitlines()
    assert links[0].startswith("<urn:cascader:entity:d1> <urn:cascader:relation:treats> <urn:cascader:entity:")
    assert len(links) == 4


def test_all_asks_everything_that_makes_sense(run, drugs):
    code, out, _ = run("predict", drugs, "--all", "--min-probability", "0.01", "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    kg = cascader.load_run(drugs).kg
    known = {(kg.entities[h].id, kg.entities[t].id) for h, _, t in kg.triples()}
    assert rows
    assert not known & {(row["head"], row["tail"]) for row in rows}
    assert all(row["probability"] >= 0.01 for row in rows)
    assert run("predict", drugs, "--all", "--min-probability", "1")[0] == 0


def test_a_bad_row_stops_all_or_is_skipped(run, drugs, tmp_path):
    (tmp_path / "q.tsv").write_text("aspirin\ttreats\naspirine\ttreats\nibuprofen\ttreats\n")
    code, out, err = run("predict", drugs, "--file", tmp_path / "q.tsv")
    assert (code, out) == (2, "")
    assert "q.tsv:2: no entity is called 'aspirine'" in err
    code, out, err = run("predict", drugs, "--file", tmp_path / "q.tsv", "--keep-going", "--known")
    assert code == 0
    assert "skipped: " in err and "q.tsv:2: " in err
    assert "(aspirin, treats, ?)" in out
    assert "(ibuprofen, treats, ?)" in out
    (tmp_path / "q.tsv").write_text("aspirine\ttreats\n")
    code, _, err = run("predict", drugs, "--file", tmp_path / "q.tsv", "--keep-going")
    assert (code, "can be answered. Correct the rows" in err) == (2, True)


def test_verdicts(run, drugs, tmp_path):
    (tmp_path / "t.tsv").write_text("aspirin\ttreats\tx3\nx1\ttreats\taspirin\n")
    code, out, err = run("classify", drugs, tmp_path / "t.tsv")
    assert (code, err) == (0, "")
    assert "of other valid triples and as many near misses." in out
    assert re.search(r"right for \d+\.\d % of other", out)
    table = [line.split() for line in out.splitlines()]
    code, lines, _ = run("classify", drugs, tmp_path / "t.tsv", "--format", "jsonl")
    first, second = (json.loads(line) for line in lines.splitlines())
    assert (first["is_known"], second["is_known"]) == (True, False)
    assert 0 <= second["probability"] <= 1
    words = ["known" if first["is_true"] else "known, but doubted", "true" if second["is_true"] else "false"]
    assert [" ".join(row) for row in table if row[:3] == ["aspirin", "treats", "x3"]][0].endswith(f"% {words[0]}")
    assert [row[-1] for row in table if row[1:3] == ["treats", "aspirin"]] == [words[1]]
    assert all(f"1 {each}" in out for each in words)
    assert first["threshold"] == 0.5
    (tmp_path / "t.tsv").write_text("aspirin\ttreats\tnothing\naspirin\ttreats\tx3\n")
    code, _, err = run("classify", drugs, tmp_path / "t.tsv")
    assert (code, "t.tsv:1: no entity is called 'nothing'" in err) == (2, True)
    assert run("classify", drugs, tmp_path / "t.tsv", "--keep-going")[0] == 0


class TestLabels:
    """Labelled triples change the verdicts of a run; bad ones change nothing."""

    ROWS = [f"x{i}\ttreats\tx{j}\t{int(i < j)}" for i in range(3) for j in range(4, 8)] + ["x5\ttreats\tx1\tno"] * 2
    ROWS += [f"x{i}\ttreats\tx0\tfalse" for i in range(4, 8)]

    @pytest.fixture
    def labelled(self, drugs, tmp_path):
        """A run of its own, whose labels no other test sees."""
        copy = tmp_path / "run"
        shutil.copytree(drugs, copy)
        return copy

    def test_they_are_learned_and_kept(self, run, labelled, tmp_path):
        (tmp_path / "labels.tsv").write_text("\n".join(self.ROWS))
        code, out, err = run("calibrate", labelled, tmp_path / "labels.tsv")
        assert (code, err) == (0, "")
        assert re.match(r"Of 17 labels, [\d.]+ % were judged right before, and [\d.]+ % when the others had", out)
        (tmp_path / "t.tsv").write_text("aspirin\ttreats\tx3\n")
        assert "Verdicts have also learned from 17 labels." in run("classify", labelled, tmp_path / "t.tsv")[1]
        (labelled / "labels.json").unlink()
        assert "learned from, too" not in run("classify", labelled, tmp_path / "t.tsv")[1]

    @pytest.mark.parametrize(("after", "is_said"), [(0.6, True), (0.7, False), (0.8, False)])
    def test_labels_that_do_not_help_are_said_to_do_so(self, after, is_said):
        said = "The labels do not help; delete labels.json to judge without them."
        assert (said in LabelGain(labels=40, before=0.7, after=after).in_words()) == is_said

    def test_in_python_and_with_a_header(self, run, labelled, tmp_path):
        rows = [(h, r, t, label) for h, r, t, label in (row.split("\t") for row in self.ROWS)]
        found = cascader.load_run(labelled).calibrate([(h, r, t, label in ("1",)) for h, r, t, label in rows])
        (tmp_path / "labels.csv").write_text(
            "\n".join(["label,head,relation,tail", *(f"{x},{h},{r},{t}" for h, r, t, x in rows)])
        )
        assert run("calibrate", labelled, tmp_path / "labels.csv")[1].strip() == found.in_words()

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (["x1\ttreats\tx2\tmaybe"], "labels.tsv:1: 'maybe' is not a label"),
            (["aspirine\ttreats\tx2\t1"], "no entity is called 'aspirine' .* Closest: aspirin"),
            (["x1\ttreats\tx2\t1", "x1\ttreats\tx2\t0"], "labels.tsv:2: this triple is false here and true in .*:1"),
            (["x1\ttreats\tx2\t1"], "found 1 labelled triple, expected at least 10"),
            ([f"x1\ttreats\tx{i}\tyes" for i in (0, *range(3, 8))] * 2, "found 6 labelled triples"),
            (
                [f"x{a}\ttreats\tx{b}\tyes" for a in range(3) for b in range(3, 8)],
                "15 of 15 labelled triples are true and 0 false",
            ),
            (["x1\ttreats\tx2"], "found 3 columns, expected head, relation, tail and label"),
            (["head\trelation\ttail\tsource", "x1\ttreats\tx2\tme"], "'source' is not a label"),
        ],
    )
    def test_bad_ones_are_refused_and_change_nothing(self, run, drugs, tmp_path, rows, message):
        (tmp_path / "labels.tsv").write_text("\n".join(rows))
        before = (drugs / "calibration.json").read_bytes()
        code, _, err = run("calibrate", drugs, tmp_path / "labels.tsv")
        assert (code, bool(re.search(message, err))) == (2, True), err
        assert (drugs / "calibration.json").read_bytes() == before
        assert not (drugs / "labels.json").exists()


def test_without_valid_answers_have_no_probability(run, tmp_path):
    folder = fitted(tmp_path, "--valid", "0")
    code, out, err = run("predict", folder, "aspirin", "treats")
    assert (code, err) == (0, "")
    assert "No probabilities: the graph has no valid triples" in out
    code, _, err = run("predict", folder, "aspirin", "treats", "--min-probability", "0.5")
    assert (code, "there are no probabilities" in err) == (2, True)
    (tmp_path / "t.tsv").write_text("aspirin\ttreats\tx3\n")
    code, _, err = run("classify", folder, tmp_path / "t.tsv")
    assert (code, "no valid triples to choose a threshold on" in err) == (2, True)


class TestThreeTiers:
    """What only a run with language models can do, and what a budget leaves of it."""

    NEW = "pqr: something that nobody has seen"

    def test_a_new_entity_is_asked_about_by_its_text(self, run, three_tiers):
        code, out, err = run("predict", three_tiers, "--new", self.NEW, "likes", "--top", "3")
        assert (code, err) == (0, "")
        assert "(pqr, likes, ?)" in out
        assert "No probabilities: they can be calibrated only for entities that were trained, not for new ones." in out
        code, out, _ = run("predict", three_tiers, "--new", self.NEW, "likes", "--top", "3", "--format", "jsonl")
        rows = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [(row["head"], row["relation"], row["rank"]) for row in rows] == [
            ("new:pqr", "likes", i) for i in (1, 2, 3)
        ]
        assert {row["probability"] for row in rows} == {None}

    def test_a_new_entity_can_be_the_tail(self, run, three_tiers):
        asked = ("--new", self.NEW, "likes", "--side", "head", "--format", "jsonl")
        code, out, _ = run("predict", three_tiers, *asked)
        rows = [json.loads(line) for line in out.splitlines()]
        assert (code, len(rows)) == (0, 10)
        assert {row["tail"] for row in rows} == {"new:pqr"}

    def test_no_time_leaves_the_first_tier_to_answer_alone(self, run, three_tiers):
        asked = ("predict", three_tiers, "abc a", "likes", "--top", "3", "--known", "--format", "jsonl")
        code, out, err = run(*asked, "--time-limit", "0.000000001s", "--why")
        rows = [json.loads(line) for line in out.splitlines()]
        assert (code, err, len(rows)) == (0, "", 3)
        assert [[step["tier"] for step in row["why"]["trace"]] for row in rows] == [["kge"]] * 3

    def test_time_enough_changes_nothing(self, run, three_tiers):
        asked = ("predict", three_tiers, "abc a", "likes", "--top", "3", "--known", "--format", "jsonl")
        assert run(*asked, "--time-limit", "10m") == run(*asked)


BAD_INPUT = {
    "an unknown name": (
        ["aspirine", "treats"],
        "no entity is called 'aspirine' (of 16 entities). Closest: aspirin",
    ),
    "an ambiguous name": (["fever", "treats"], "'fever' names 2 entities: fever (x1), fever (x2). Use the id"),
    "an unknown relation": (["aspirin", "cures"], "no relation is called 'cures'"),
    "an entity alone": (["aspirin"], "'aspirin' is not a question. Write: cascader predict"),
    "no question": ([], "no question was asked. Give ENTITY RELATION, or --file FILE, or --all, or --new"),
    "two ways to ask": (["aspirin", "treats", "--all"], "ENTITY RELATION and --all cannot be combined"),
    "a new entity without a relation": (
        ["--new", "zinc: a metal"],
        "'zinc: a metal' is not a question. Write: cascader predict",
    ),
    "a new entity where nothing reads texts": (["--new", "zinc: a metal", "treats"], "has no dual encoder to read"),
    "a new entity without a name": (["--new", " : a metal", "treats"], "does not name an entity. Write it as"),
    "a side that is none": (["aspirin", "treats", "--side", "left"], "'left' is not one of 'head', 'tail'"),
    "no answers": (["aspirin", "treats", "--top", "0"], "top is 0, expected at least 1 answer"),
    "Parquet on the screen": (
        ["aspirin", "treats", "--format", "parquet"],
        "Parquet is a binary format, so it needs a file",
    ),
    "a file of no format": (
        ["aspirin", "treats", "--out", "answers.doc"],
        "does not end in a known format. Add --format",
    ),
    "a table in a file": (["aspirin", "treats", "--format", "table", "--out", "a.txt"], "a table is for the screen"),
    "a missing file": (["--file", "nowhere.tsv"], "cannot read nowhere.tsv: No such file or directory."),
    "a folder in place of a file": (["--file", "."], "cannot read .: Is a directory."),
    "a new entity that is no UTF-8": (["--new", "zinc\udcff: a metal", "treats"], "it has bytes that are not UTF-8"),
    "a file in a folder that is not there": (
        ["aspirin", "treats", "--out", "missing/answers.tsv"],
        "cannot write missing/answers.tsv: there is no folder missing. Make it first.",
    ),
    "less than no time": (["aspirin", "treats", "--time-limit", "-1s"], "'-1s' is not a duration"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_a_sentence(case, run, drugs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD_INPUT[case]
    code, _, err = run("predict", drugs, *arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("top", [2**31, 2**63, 10**30])
def test_more_answers_than_a_number_can_count_are_all_there_are(run, drugs, top):
    code, out, err = run("predict", drugs, "aspirin", "treats", "--top", top, "--known", "--format", "tsv")
    assert (code, len(out.splitlines())) == (0, 1 + 15), err  # all but the anchor itself


class TestOut:
    """`--out` never replaces what is no regular file, nor a link."""

    def ask(self, run, drugs, out):
        return run("predict", drugs, "aspirin", "treats", "--top", "2", "--format", "tsv", "--out", out)

    @pytest.fixture
    def expected(self, run, drugs):
        return run("predict", drugs, "aspirin", "treats", "--top", "2", "--format", "tsv")[1]

    def test_a_fifo_is_written_into(self, run, drugs, expected, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit((tmp_path / "fifo").read_text)
            assert self.ask(run, drugs, tmp_path / "fifo")[0] == 0
            assert read.result() == expected
        assert (tmp_path / "fifo").is_fifo()

    def test_a_link_to_a_file_stays_a_link(self, run, drugs, expected, tmp_path):
        (tmp_path / "answers.tsv").write_text("old")
        (tmp_path / "link.tsv").symlink_to("answers.tsv")
        assert self.ask(run, drugs, tmp_path / "link.tsv")[0] == 0
        assert (tmp_path / "answers.tsv").read_text() == expected
        assert (tmp_path / "link.tsv").is_symlink()

    def test_a_device_is_written_into(self, run, drugs):
        assert self.ask(run, drugs, "/dev/null")[0] == 0
        assert Path("/dev/null").is_char_device()

    def test_a_device_that_is_full_is_named(self, run, drugs):
        code, _, err = self.ask(run, drugs, "/dev/full")
        assert (code, "cannot write /dev/full: No space left on device." in err) == (2, True)

    def test_a_folder_is_refused(self, run, drugs, tmp_path):
        code, _, err = self.ask(run, drugs, tmp_path)
        assert (code, "it is a folder. Name a file in it." in err) == (2, True)

    def test_a_link_to_itself_is_refused_and_stays_a_link(self, run, drugs, tmp_path):
        (tmp_path / "loop.tsv").symlink_to("loop.tsv")
        code, _, err = self.ask(run, drugs, tmp_path / "loop.tsv")
        assert (code, "is a link that leads back to itself. Remove it, or name another" in err) == (2, True)
        assert (tmp_path / "loop.tsv").is_symlink()

    @pytest.mark.slow
    def test_standard_output_is_written_to_even_where_it_is_a_file(self, drugs, expected, tmp_path):
        (tmp_path / "answers.tsv").write_text("before\n")
        words = ["predict", drugs, "aspirin", "treats", "--top", "2", "--format", "tsv", "--out", "/dev/stdout"]
        assert finished(print_into, tmp_path / "answers.tsv", *words) == (0, "")
        assert (tmp_path / "answers.tsv").read_text() == f"before\n{expected}"


class TestAReadOnlyRun:
    @pytest.fixture
    def drugs(self, drugs, tmp_path, monkeypatch):
        """The run as others see it who may read and not write; who runs the tests may be allowed everything."""
        copy = shutil.copytree(drugs, tmp_path / "shared")
        (copy / "calibration.json").unlink(missing_ok=True)
        monkeypatch.setattr("cascader.runs.folder.RunFolder.is_read_only", property(lambda folder: True))
        return copy

    def test_it_answers_and_judges_and_stays_as_it_is(self, run, drugs, tmp_path):
        (tmp_path / "t.tsv").write_text("aspirin\ttreats\tx3\n")
        before = sorted(drugs.rglob("*"))
        assert run("predict", drugs, "aspirin", "treats")[0] == 0
        code, out, _ = run("classify", drugs, tmp_path / "t.tsv", "--format", "jsonl")
        assert (code, json.loads(out)["is_known"]) == (0, True)
        assert sorted(drugs.rglob("*")) == before

    def test_its_results_go_to_out(self, run, drugs, tmp_path):
        for name, what in (("evaluate", "result"), ("report", "report")):
            code, _, err = run(name, drugs)
            message = f"is read-only, so its {what} needs another place. Name a folder with --out."
            assert (code, message in " ".join(err.split())) == (2, True)
        assert run("evaluate", drugs, "--out", tmp_path / "results")[0] == 0
        assert list((tmp_path / "results").glob("*.json"))


def test_a_folder_without_a_run(run, tmp_path):
    (tmp_path / "t.tsv").write_text("a\tr\tb\n")
    for arguments in (["predict", tmp_path, "a", "r"], ["classify", tmp_path, tmp_path / "t.tsv"]):
        code, _, err = run(*arguments)
        assert (code, "holds no complete run" in err) == (2, True)


def test_a_graph_of_two_entities(run, tmp_path):
    (tmp_path / "two.tsv").write_text("a\tr\tb\n")
    assert run("fit", tmp_path / "two.tsv", "--set", "epochs=1", "--set", "dim=2", "--out", tmp_path / "run")[0] == 0
    code, out, err = run("predict", tmp_path / "run", "a", "r", "--format", "jsonl", "--known")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["rank"], row["head"], row["tail"], row["is_known"]) for row in rows] == [(1, "a", "b", True)]


class TestInPython:
    def test_predict_and_classify_from_a_run(self, drugs):
        loaded = cascader.load_run(drugs)
        answers = loaded.predict("aspirin", "treats", top=3, with_known=True)
        assert [answer.rank for answer in answers] == [1, 2, 3]
        assert all(isinstance(answer, cascader.Prediction) for answer in answers)
        assert all(0 <= answer.probability <= 1 for answer in answers)
        (verdict,) = loaded.classify([("aspirin", "treats", "x3")])
        assert isinstance(verdict, cascader.Verdict)
        assert verdict.is_known
        assert loaded.classify([]) == []

    def test_triples_may_come_as_a_frame_and_answers_become_one(self, drugs):
        loaded = cascader.load_run(drugs)
        triples = pandas.DataFrame({"tail": ["x3", "x4"], "head": "aspirin", "relation": "treats"})
        verdicts = loaded.classify(triples)
        assert verdicts == loaded.classify([("aspirin", "treats", "x3"), ("aspirin", "treats", "x4")])
        frame = cascader.to_frame(loaded.predict("aspirin", "treats", top=3, with_known=True))
        assert frame["rank"].tolist() == [1, 2, 3]
        assert set(frame["head"]) == {"d0"}
