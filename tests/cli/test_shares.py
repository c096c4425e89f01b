"""`--shard` and `merge`: a job array scores what one process would, and says what to do next."""

import json
import re
import shutil

import pytest

from cascader.scoring import ScoreStore
from cascader.scoring.engine import FileShard
from cascader.storage import LOCK


@pytest.fixture
def unscored(reading_run, tmp_path, monkeypatch):
    """A run of which no pair is stored, and so small that its shards have to be as well."""
    monkeypatch.setattr(ScoreStore.__init__, "__defaults__", (5,))
    return shutil.copytree(reading_run, tmp_path / "run")


def scores(folder):
    paths = [path for path in (folder / "scores").rglob("*") if path.is_file() and path.name != LOCK]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def no_more_reading(monkeypatch):
    monkeypatch.setattr(FileShard, "keep", lambda *_: pytest.fail("a pair was read again"))


QUESTIONS = "entity\trelation\n" + "".join(f"abc {letter}\tlikes\n" for letter in "abcdefgha")


def commands(tmp_path):
    (tmp_path / "questions.tsv").write_text(QUESTIONS)
    return {"evaluate": [], "predict --file": ["--file", tmp_path / "questions.tsv"], "predict --all": ["--all"]}


@pytest.mark.parametrize("command", ["evaluate", "predict --file", "predict --all"])
def test_shares_make_the_files_of_one_process(run, unscored, tmp_path, monkeypatch, command):
    options, name = commands(tmp_path)[command], command.split()[0]
    calibrated = shutil.copytree(unscored, tmp_path / "calibrated")
    assert run(name, calibrated, *options)[0] == 0
    shutil.copy(calibrated / "calibration.json", unscored)  # what that takes is read by the shares of another job
    alone = shutil.copytree(unscored, tmp_path / "alone")
    assert run(name, alone, *options)[0] == 0
    for number in (3, 1, 2):
        code, out, err = run(name, unscored, *options, "--shard", f"{number}/3")
        assert (code, err) == (0, "")
        assert f"When all 3 are done: cascader merge {unscored}." in out
    assert not (unscored / "scores").exists()
    code, out, _ = run("merge", unscored)
    assert (code, re.search(r"Stored [\d,]+ new pairs in", out) is not None) == (0, True)
    assert scores(unscored) == scores(alone)
    no_more_reading(monkeypatch)
    assert run(name, unscored, *options)[0] == 0
    assert "Nothing is left to merge" in run("merge", unscored)[1]
    assert "there is nothing left to read" in run(name, unscored, *options, "--shard", "1/3")[1]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("command", ["predict --file", "predict --all"])
def test_two_processes_answer_like_one_and_make_the_same_files(run, unscored, tmp_path, monkeypatch, command):
    options, alone = commands(tmp_path)[command], shutil.copytree(unscored, tmp_path / "alone")
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    assert run("predict", alone, *options, "--out", one)[0] == 0
    no_more_reading(monkeypatch)
    assert run("predict", unscored, *options, "--processes", 2, "--out", two)[0] == 0
    assert one.read_bytes() == two.read_bytes() != b""
    assert len(scores(unscored)) > 3
    assert scores(unscored) == scores(alone)


def test_what_the_probabilities_of_all_links_take_is_shared_first(run, unscored):
    for _ in range(2):  # the questions that they are calibrated on, then all others
        for number in (1, 2):
            assert run("predict", unscored, "--all", "--shard", f"{number}/2")[0] == 0
        assert run("merge", unscored)[0] == 0
    assert "there is nothing left to read" in run("predict", unscored, "--all", "--shard", "1/2")[1]


def test_folders_of_their_own(run, unscored, tmp_path):
    for number in (1, 2):
        code, out, _ = run("evaluate", unscored, "--shard", f"{number}/2", "--out", tmp_path / str(number))
        assert (code, "cascader merge" in out, "and all folders of shares" in out) == (0, True, True)
    assert not (unscored / "shares").exists()
    code, _, err = run("merge", unscored, tmp_path / "1")
    assert code == 2
    assert "shards of" in err
    assert f"cascader evaluate {unscored} --shard 2/2 --out" in err
    assert run("merge", unscored, tmp_path / "1", tmp_path / "2")[0] == 0
    assert scores(unscored)


def test_what_tuning_reads_is_shared_first(run, unscored):
    (unscored / "tuning.json").unlink()
    for _ in range(2):  # what is chosen on valid, then what is measured on test
        for number in (1, 2):
            code, out, _ = run("evaluate", unscored, "--shard", f"{number}/2")
            assert code == 0
        assert run("merge", unscored)[0] == 0
    assert "and then the same commands again" not in out
    assert json.loads((unscored / "tuning.json").read_text())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["evaluate", "RUN", "--shard", "3/2"], "--shard is '3/2', expected a number of as many, from 1/8 to 8/8"),
        (["evaluate", "RUN", "--shard", "1/2", "--time-limit", "9s"], "--shard and --time-limit cannot be combined"),
        (["evaluate", "RUN", "--shard", "1/2", "--with", "RUN"], "--shard and --with cannot be combined"),
        (["predict", "RUN", "abc a", "likes", "--shard", "1/2"], "--shard needs many questions. Give --file"),
        (["predict", "RUN", "--all", "--shard", "1/2", "--time-limit", "9s"], "cannot be combined"),
        (["merge", "RUN", "nowhere"], "there is no folder nowhere. Name those that --shard was given as --out"),
        (["merge", "RUN", "RUN/graph"], "has no scores of the tiers of"),
        (["merge", "nowhere"], "there is no folder nowhere"),
        (["evaluate", "RUN", "--address", "head:6379"], "--address head:6379 names a Ray cluster. Add: --engine ray"),
        (["evaluate", "RUN", "--engine", "ray", "--processes", "0"], "workers is 0, expected at least 1"),
        (["evaluate", "RUN", "--processes", "0"], "processes is 0, expected at least 1"),
    ],
)
def test_bad_input(run, reading_run, line, message):
    code, _, err = run(*(word.replace("RUN", str(reading_run)) for word in line))
    assert (code, message in " ".join(err.split())) == (2, True), err


def test_a_wrong_address_is_one_sentence(run, unscored):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cascader[ray]'")
    code, _, err = run("evaluate", unscored, "--engine", "ray", "--address", "127.0.0.1:1")
    assert code == 2
    assert err.startswith("error: no Ray cluster answers at 127.0.0.1:1: Connection refused. Check the address")
