"""`cascader fit --budget`: the plan, its limits, and what happens when it is killed."""

import json
import signal
import subprocess
import sys
import time

import pytest

import cascader
from tests.cli.conftest import setting_options

QUICK = ("--set", "epochs=2", "--set", "dim=4")


@pytest.fixture
def bare(tmp_path):
    """A graph whose names say nothing."""
    (tmp_path / "bare.tsv").write_text("".join(f"Q{i}\tP1\tQ{j}\n" for i in range(9) for j in range(i)))
    return tmp_path / "bare.tsv"


@pytest.fixture
def small(tiny_model):
    """Settings of all tiers, such that a training takes a moment."""
    settings = ["epochs=20", "dim=8", f"dual.base={tiny_model}", "dual.epochs=10", f"cross.base={tiny_model}"]
    settings += [f"late.base={tiny_model}", "late.epochs=10", "late.layer=1"]
    settings += [
        "cross.split_layer=0",
        "cross.precision=float32",
        "cross.rounds=3",
        "cross.queries_per_round=8",
        "cross.valid_top_k=3",
    ]
    return setting_options(settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "0"], "'0' is not a duration, expected more than 0 seconds"),
        (
            ["--budget", "soon"],
            "'soon' is not a duration, expected more than 0 seconds: a number of seconds, or a string with units",
        ),
        (["--budget", "-5m"], "'-5m' is not a duration"),
        (
            ["--budget", "5m", "--time-limit", "3m"],
            "a budget is shared by all tiers, while a time limit applies to each of them",
        ),
        (["--time-limit", "0m"], "'0m' is not a duration, expected more than 0 seconds"),
        (["--seed", "-1"], "seed is -1, expected a whole number"),
        (["--split-seed", "-1"], "seed is -1, expected an integer of at least 0"),
    ],
)
def test_limits_that_cannot_be_exit_with_2(run, bare, tmp_path, options, message):
    code, _, err = run("fit", bare, "--out", tmp_path / "run", *options)
    assert (code, (tmp_path / "run").exists()) == (2, False)
    assert message in " ".join(err.split())


def test_a_dry_run_prints_the_plan_and_writes_nothing(run, bare, tmp_path):
    code, out, _ = run("fit", bare, "--tiers", "rules,kge", "--dry-run", "--out", tmp_path / "run")
    assert (code, (tmp_path / "run").exists()) == (0, False)
    for words in (
        "The plan for bare:",
        "estimated, at most",
        "complex   quick",
        "rules     quick",
        "tuning and calibration",
        "total",
    ):
        assert words in out
    assert "No language models: the graph has no texts for them to read." in out


def test_a_limit_for_each_tier_is_part_of_the_plan(run, bare, tmp_path):
    options = ("--set", "epochs=1000000", "--time-limit", "2m", "--dry-run", "--out", tmp_path / "run")
    code, out, _ = run("fit", bare, "--set", "dim=4", *options)
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["kge"])
    assert (code, row[-2:]) == (0, ["2", "min"])


def test_with_time_enough_the_best_preset_is_taken_and_what_it_took_is_said(run, bare, tmp_path):
    code, out, _ = run("fit", bare, *QUICK, "--budget", "30m", "--out", tmp_path / "run")
    assert code == 0
    assert "The plan for bare, within 30 min" in out
    assert "Took" in out
    assert cascader.load_run(tmp_path / "run").metadata["preset"] == "best"
    code, out, _ = run("fit", bare, *QUICK, "--budget", "30m", "--out", tmp_path / "run")
    assert (code, "is already trained" in out, "The plan" in out) == (0, True, False)


def test_a_preset_that_is_asked_for_is_kept_whatever_the_budget(run, bare, tmp_path):
    options = ("--budget", "30m", "--preset", "balanced", "--out", tmp_path / "run")
    assert run("fit", bare, *QUICK, *options)[0] == 0
    assert cascader.load_run(tmp_path / "run").metadata["preset"] == "balanced"


def test_a_budget_too_small_trains_the_first_tier_alone_for_as_long_as_there_is(run, likes, small, tmp_path):
    code, out, _ = run(
        "fit",
        likes,
        "--tiers",
        "kge,dual,late,cross",
        *small,
        "--set",
        "epochs=100000",
        "--budget",
        "0.001s",
        "--out",
        tmp_path / "run",
    )
    assert code == 0
    assert "Skipped: dual; with it," in out
    assert "Skipped: cross; it comes after a tier that is skipped." in out
    assert "The budget is" in out
    loaded = cascader.load_run(tmp_path / "run")
    assert list(loaded.tiers) == ["kge"]
    assert 1 <= loaded.tier("kge").history_.epochs < 100000


def test_the_seed_draws_the_training_and_the_split_seed_what_is_held_back(run, bare, tmp_path):
    def fitted(name, *options):
        assert run("fit", bare, *QUICK, *options, "--out", tmp_path / name)[0] == 0
        return cascader.load_run(tmp_path / name)

    plain, trained, drawn = fitted("a"), fitted("b", "--seed", "3"), fitted("c", "--split-seed", "3")
    assert [loaded.tier("kge").settings.seed for loaded in (plain, trained, drawn)] == [0, 3, 0]
    assert plain.kg.data_hash == trained.kg.data_hash != drawn.kg.data_hash


def test_tiers_that_are_trained_already_are_part_of_a_new_plan(run, likes, small, tmp_path):
    kge = ("--tiers", "kge", "--set", "epochs=20", "--set", "dim=8")
    assert run("fit", likes, *kge, "--out", tmp_path / "run")[0] == 0
    code, out, _ = run("fit", likes, *small, "--dry-run", "--out", tmp_path / "run")
    assert (code, "already trained" in out) == (0, True)


def test_without_a_budget_nothing_is_estimated_but_a_dry_run_still_is(run, bare, tmp_path):
    code, out, _ = run("fit", bare, *QUICK, "--out", tmp_path / "run")
    assert (code, "The plan for bare:" in out, "estimated" in out, "Took" in out) == (0, True, False, True)
    code, out, _ = run("fit", bare, *QUICK, "--dry-run", "--out", tmp_path / "run")
    assert (code, "estimated, at most" in out, "already trained" in out) == (0, True, True)


@pytest.mark.slow
def test_killed_it_resumes_the_same_plan(run, likes, small, tmp_path):
    folder = tmp_path / "run"
    command = ["fit", str(likes), *small, "--budget", "15m", "--out", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "cascader", *command], stdout=subprocess.DEVNULL)
    while not (folder / "tiers" / "kge" / "model.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = json.loads((folder / "plan.json").read_text())
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert f"Resuming the plan in {folder}." in "".join(out.splitlines())
    after = json.loads((folder / "plan.json").read_text())
    tiers = ["plausibility", "rules", "similarity", "kge", "dual", "late", "cross"]
    for tier in tiers:
        took = after["tiers"][tier].pop("actual_seconds")
        assert took > 0
        before["tiers"][tier].pop("actual_seconds")
    assert after["tiers"] == before["tiers"]
    assert (after["request"], after["budget"]) == (before["request"], 900.0)
    assert list(cascader.load_run(folder).tiers) == tiers
