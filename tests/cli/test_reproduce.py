"""`cascader reproduce`: one command from a graph to the table, which goes on wherever it was killed."""

import json
import resource
import shutil
import time
from contextlib import contextmanager

import pytest

from cascader.runs import reproduction
from cascader.runs.rows import ROWS
from tests.cli.conftest import call_once, setting_options
from tests.faults.__main__ import main as meet_with_faults
from tests.processes import finished

KILLS = 2
EMBEDDINGS = ("kge", "kge2", "kge3", "kge4")


@pytest.fixture(scope="module")
def options(likes, tiny_model):
    small = [f"{tier}.{setting}" for tier in EMBEDDINGS for setting in ("dim=4", "epochs=2")]
    text = (f"base={tiny_model}", "epochs=2", "dim=4")
    small += [f"{tier}.{each}" for tier in ("dual", "dual2", "dual3", "late") for each in text]
    small += ["late.layer=1"]
    cross = (f"base={tiny_model}", "split_layer=0", "rounds=2", "queries_per_round=8", "valid_top_k=3")
    cross += ("precision=float32",)  # an export to eight bits would take longer than everything else
    small += [f"{tier}.{each}" for tier in ("cross", "cross2") for each in cross]
    return ["reproduce", str(likes), "--preset", "quick", *setting_options(small)]


@pytest.fixture(scope="module")
def undisturbed(options, tmp_path_factory):
    """The folder of a reproduction that nothing has disturbed, and the seconds that it took."""
    folder, started = tmp_path_factory.mktemp("reproduced") / "whole", time.monotonic()
    call_once(*options, "--out", folder)
    return folder, time.monotonic() - started


@pytest.fixture(scope="module")
def reproduced(undisturbed):
    """That folder; nobody may change what is in it."""
    return undisturbed[0]


def results(folder):
    return {path.name: path.read_bytes() for path in (folder / "results").glob("*.ranks.parquet")}


def test_the_same_command_prints_the_table_again_without_reading_test(run, options, reproduced, monkeypatch):
    monkeypatch.setattr("cascader.runs.run.Run.evaluate", None)
    code, out, err = run(*options, "--out", reproduced)
    assert (code, err) == (0, "")
    rows = json.loads((reproduced / "reproduction.json").read_text())["rows"]
    assert len(rows) == len(ROWS)
    for row in rows:
        assert f"{row['name']} " in out
        assert f"{row['mrr']:.4f}" in out
    assert "cascader-paper" in out
    assert f"Written to {reproduced}/reproduction.json, and the report to {reproduced}/report/report.html." in out


def test_each_row_can_be_measured_again_with_evaluate(run, reproduced, tmp_path):
    copied = shutil.copytree(reproduced, tmp_path / "copied")
    rows = json.loads((reproduced / "reproduction.json").read_text())["rows"]
    for row in rows:
        assert run(*row["again"].replace(str(reproduced), str(copied)).split()[1:])[0] == 0
        assert json.loads((copied / "again" / f"{row['name']}.json").read_text())["mrr"] == row["mrr"]


def test_the_command_is_kept_with_the_result(options, reproduced):
    command = json.loads((reproduced / "results" / "rules.json").read_text())["command"]
    assert command.startswith("cascader reproduce ")
    assert command.endswith(f"--out {reproduced}")


def test_a_dry_run_prints_the_plan_and_writes_nothing(run, options, tmp_path):
    code, out, err = run(*options, "--out", tmp_path / "likes", "--dry-run", "--max-hours", "3")
    assert (code, err) == (0, "")
    assert "To reproduce on likes, preset quick, within 3 h: 38 triples to train on" in out
    for step in ("train cross2", "cross (kg-bert)", "measure cascader-paper", "likely", "at the latest", "total"):
        assert step in out
    assert not (tmp_path / "likes").exists()


BAD_INPUT = {
    "an unknown data set": (["freebase"], "there is no file or folder freebase"),
    "no hours": (["{likes}", "--max-hours", "0"], "max_hours is 0.0, expected more than 0 hours"),
    "an unknown preset": (["{likes}", "--preset", "worst"], "there is no preset 'worst'. Choose one of: quick"),
    "an unknown tier": (["{likes}", "--set", "kge9.dim=2"], "is for the tier 'kge9', but the tiers are: plausibility"),
    "a folder of another reproduction": (
        ["{likes}", "--preset", "best", "--out", "{reproduced}"],
        "holds another reproduction: it was started with preset 'quick', while this one has 'best'",
    ),
    "a folder of something else": (["{likes}", "--out", "{other}"], "holds other files, such as mine.txt"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_a_sentence(case, run, likes, reproduced, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    arguments, message = BAD_INPUT[case]
    places = {"likes": likes, "reproduced": reproduced, "other": tmp_path}
    code, _, err = run("reproduce", *(argument.format(**places) for argument in arguments))
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_rows(options, undisturbed, random_seed):
    (whole, seconds), folder = undisturbed, undisturbed[0].parent
    killer = ["--folder", str(folder), "--seed", str(random_seed), "--kills", str(KILLS), "--seconds", str(seconds)]
    code, printed = finished(meet_with_faults, [*killer, *options])
    assert code == 0, printed
    faults = json.loads((folder / "faults.json").read_text())
    assert len(faults) == KILLS
    assert len(results(whole)) == len(ROWS)
    for name in {fault["folder"] for fault in faults}:
        assert results(folder / name) == results(whole)
        assert read_after_measured(folder / name) == []


def read_after_measured(folder):
    """The rows that were read again although their result was there."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    heard = [(event["kind"], event["text"].partition(":")[0].removesuffix(".").split()[-1]) for event in events]
    measured = [name for kind, name in heard if kind == "measured"]
    return [name for name in measured if ("reading", name) in heard[heard.index(("measured", name)) :]]


@contextmanager
def full_disk():
    """As soon as test is read, no file of this process may grow beyond a thousand bytes."""
    before, measure = resource.getrlimit(resource.RLIMIT_FSIZE), reproduction._measure

    def fill_the_disk(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        return measure(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "_measure", fill_the_disk)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_a_full_disk_is_a_sentence_and_the_same_command_goes_on(run, options, reproduced, tmp_path):
    folder = shutil.copytree(reproduced, tmp_path / "likes")
    shutil.rmtree(folder / "results")  # all that is left to do is to read test
    command = [*options, "--out", str(folder)]
    with full_disk():
        code, _, err = run(*command)
    assert code == 2
    assert "error: " in err
    assert "File too large" in err
    assert "Traceback" not in err
    call_once(*command)
    assert results(folder) == results(reproduced)
