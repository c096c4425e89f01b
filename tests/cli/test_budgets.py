"""`cascader fit --budget`: the plan, its limits, and what happens when it is killed."""

import json
import re
import signal
import time

import pytest
from safetensors.numpy import load_file

import cascader
from tests.cli.conftest import setting_options
from tests.processes import Forked, command

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
        "likely",
        "at the latest",
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
    assert cascader.load_run(tmp_path / "run").metadata.preset == "best"
    code, out, _ = run("fit", bare, *QUICK, "--budget", "30m", "--out", tmp_path / "run")
    assert (code, "is already trained" in out, "The plan" in out) == (0, True, False)


def test_a_preset_that_is_asked_for_is_kept_whatever_the_budget(run, bare, tmp_path):
    options = ("--budget", "30m", "--preset", "balanced", "--out", tmp_path / "run")
    assert run("fit", bare, *QUICK, *options)[0] == 0
    assert cascader.load_run(tmp_path / "run").metadata.preset == "balanced"


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
    assert re.search(r"Too short: kge has \d s, but one epoch takes about \d+ s, the first validation ends after", out)
    assert out.index("Too short") < out.index("Training kge")
    assert "Give it a larger --budget, a smaller --preset, or fewer --tiers" in out
    loaded = cascader.load_run(tmp_path / "run")
    assert list(loaded.tiers) == ["kge"]
    assert loaded.tier("kge").history_.epochs < 100000


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
    assert (code, "at the latest" in out, "already trained" in out) == (0, True, True)


def weights(folder):
    """The weights of all tiers of a run."""
    return {
        f"{path.parent.name}/{name}": values.tobytes()
        for path in sorted((folder / "tiers").rglob("model.safetensors"))
        for name, values in load_file(path).items()
    }


@pytest.mark.slow
def test_cut_short_in_an_epoch_it_says_so_and_with_more_time_becomes_what_it_would_have_been(
    run, likes, small, tmp_path
):
    command = ("fit", likes, "--tiers", "kge,dual,late,cross", *small, "--set", "batch_size=8")
    code, out, _ = run(*command, "--time-limit", "0.000001s", "--out", tmp_path / "run")
    assert code == 0
    assert "Too short: kge has 1 s, but one epoch takes about" in out
    assert out.index("Too short: kge") < out.index("Training kge")
    assert "Give it a larger --time-limit" in out
    assert "Trained kge for 0 epochs and 1 step of the next in" in out
    assert "nothing of it was validated, so the last weights are kept." in out
    assert "Its time, 1 s, was up before it was done: the same command with more time goes on." in out
    assert run("evaluate", tmp_path / "run")[0] == 0

    again, more = (run(*command, "--time-limit", limit, "--out", tmp_path / "run") for limit in ("0.000001s", "10m"))
    assert ("is already trained" in again[1], "goes on" in again[1]) == (True, False)
    assert f"{tmp_path / 'run' / 'tiers' / 'kge'} goes on from where 1 s were up, for 0 epochs and 1 step" in more[1]
    assert "Trained again, because they learn beside kge: dual, late, cross." in more[1]
    assert f"The results in {tmp_path / 'run' / 'results'} are those of the run as it was" in more[1]
    assert run(*command, "--out", tmp_path / "whole")[0] == 0
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert not list((tmp_path / "run").rglob("checkpoint.safetensors"))


def test_a_larger_budget_goes_on_with_what_a_smaller_one_cut_short(run, bare, tmp_path):
    command = ("fit", bare, "--tiers", "kge", *QUICK, "--set", "batch_size=8", "--out", tmp_path / "run")
    assert run(*command, "--budget", "0.000001s")[0] == 0
    assert cascader.load_run(tmp_path / "run").tier("kge").history_.partial.steps == 1
    code, out, _ = run(*command, "--budget", "0.0000001s")
    assert (code, "is already trained" in out) == (0, True)
    assert run(*command, "--budget", "0.000001s")[0] == 0  # writes its plan again
    code, out, _ = run(*command, "--budget", "10m")
    assert (code, "goes on from where 1 s were up" in out) == (0, True)
    whole = ("fit", bare, "--tiers", "kge", *QUICK, "--set", "batch_size=8", "--preset", "quick")
    assert run(*whole, "--out", tmp_path / "whole")[0] == 0
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_killed_it_resumes_the_same_plan(run, likes, small, tmp_path):
    folder = tmp_path / "run"
    fit = ["fit", likes, *small, "--budget", "15m", "--out", folder]
    with Forked(command, *fit) as process:
        while not (folder / "tiers" / "kge" / "model.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    before = json.loads((folder / "plan.json").read_text())
    code, out, err = run(*fit)
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
