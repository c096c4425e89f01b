"""`cascader fit`: from a graph to a run, again to the same one, and what cannot work."""

import json

import pytest

import cascader
from tests.cli.conftest import setting_options

QUICK = ("--set", "epochs=2", "--set", "dim=4")


def test_a_graph_becomes_a_run_and_a_run_becomes_figures(run, triples, tmp_path):
    code, out, _ = run("fit", triples, "--tiers", "kge", *QUICK, "--out", tmp_path / "run")
    assert code == 0
    assert "Trained kge for 2 epochs" in out
    triples.unlink()  # the run needs no other file
    code, out, _ = run("evaluate", tmp_path / "run")
    assert code == 0
    saved = json.loads((tmp_path / "run" / "results" / "kge-complex.json").read_text())
    assert saved["dataset"] == "friends"
    assert not (tmp_path / "run" / "tiers" / "kge" / "checkpoint.safetensors").exists()


def test_trials_keep_the_best_settings_and_what_was_set_by_hand(run, triples, tmp_path):
    options = (*QUICK, "--trials", "3", "--out", tmp_path / "run")
    code, out, _ = run("fit", triples, *options)
    assert (code, "(best)" in out) == (0, True)
    trials = json.loads((tmp_path / "run" / "search" / "trials.json").read_text())["trials"]
    saved = json.loads((tmp_path / "run" / "tiers" / "kge" / "model.json").read_text())
    best = max(trials, key=lambda trial: trial["valid_mrr"])
    assert len(trials) == 3
    assert saved["settings"]["dim"] == 4
    assert {name: saved["settings"][name] for name in best["changes"]} == best["changes"]
    assert "is already trained" in run("fit", triples, *options)[1]


@pytest.mark.parametrize("held_back", [("0", "0"), ("0", "0.2"), ("0.2", "0")])
def test_a_run_gives_back_a_graph_without_valid_or_test_as_it_was(run, triples, tmp_path, held_back):
    shares = ("--valid", held_back[0], "--test", held_back[1])
    for _ in range(2):  # the second call reads the graph that the first has kept
        code, _, err = run("fit", triples, *QUICK, *shares, "--out", tmp_path / "run")
        assert (code, err) == (0, "")
    kg = cascader.load_run(tmp_path / "run").kg
    assert [bool(len(kg.valid)), bool(len(kg.test))] == [share != "0" for share in held_back]


def test_the_same_command_again_does_nothing(run, triples, tmp_path):
    for _ in range(2):
        code, out, _ = run("fit", triples, *QUICK, "--out", tmp_path / "run")
        assert code == 0
    assert "is already trained" in out


def test_a_plan_of_an_earlier_call_with_a_budget_that_is_no_number_is_refused_by_name(run, triples, tmp_path):
    command = ("fit", triples, *QUICK, "--out", tmp_path / "run")
    assert run(*command)[0] == 0
    path = tmp_path / "run" / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "budget": "x"}))
    code, _, err = run(*command, "--budget", "1m")
    assert code == 2
    assert "plan.json has budget 'x'; expected a valid number. Delete it to make a new one." in err


def test_a_later_tier_is_added_to_a_run_and_the_first_is_not_trained_again(run, likes, tiny_model, tmp_path):
    def fit(tiers, *settings):
        return run("fit", likes, "--tiers", tiers, *QUICK, *setting_options(settings), "--out", tmp_path / "run")

    assert fit("kge")[0] == 0
    weights = (tmp_path / "run" / "tiers" / "kge" / "model.safetensors").read_bytes()
    code, out, _ = fit("kge,dual", f"dual.base={tiny_model}", "dual.epochs=2")
    assert code == 0
    assert "tiers/kge is already trained" in "".join(out.split("\n"))
    assert (tmp_path / "run" / "tiers" / "kge" / "model.safetensors").read_bytes() == weights
    assert list(cascader.load_run(tmp_path / "run").tiers) == ["kge", "dual"]


def test_three_tiers_are_trained_tuned_and_calibrated(fitted_tiers):
    assert list(cascader.load_run(fitted_tiers).tiers) == ["kge", "dual", "cross"]
    assert {path.name for path in fitted_tiers.glob("*.json")} >= {"run.json", "tuning.json", "calibration.json"}
    assert not list(fitted_tiers.rglob("checkpoint*"))


def test_two_embeddings_become_two_tiers(run, triples, tmp_path):
    options = ("--tiers", "kge", "--model", "complex,transe", *QUICK, "--set", "kge2.dim=4", "--set", "kge2.epochs=1")
    code, out, _ = run("fit", triples, *options, "--out", tmp_path / "run")
    assert (code, "Best on valid" in out) == (0, True)
    assert list(cascader.load_run(tmp_path / "run").tiers) == ["kge", "kge2"]
    code, out, _ = run("evaluate", tmp_path / "run")
    assert (code, "Plan: kge" in out) == (0, True)


def test_that_one_of_several_tiers_is_best_alone_is_said_to_be_for_want_of_evidence(run, triples, tmp_path):
    options = ("--tiers", "plausibility,rules", "--out", tmp_path / "run")
    out = " ".join(run("fit", triples, *options)[1].split())
    assert "Best on valid, with an MRR of " in out
    assert "plausibility. What the others add to it may be chance." in out


def test_three_embeddings_become_three_tiers(run, triples, tmp_path):
    settings = [f"{tier}.{setting}" for tier in ("kge", "kge2", "kge3") for setting in ("dim=4", "epochs=1")]
    options = (
        "--tiers",
        "kge",
        "--model",
        "complex,transe,rotate",
        *setting_options(settings),
        "--out",
        tmp_path / "run",
    )
    assert run("fit", triples, *options)[0] == 0
    tiers = cascader.load_run(tmp_path / "run").tiers
    assert {tier: model.name for tier, model in tiers.items()} == {"kge": "complex", "kge2": "transe", "kge3": "rotate"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "gpt"], "there is no tier or model 'gpt'. Choose from: kge, "),
        (["--preset", "slow"], "there is no preset 'slow'. Choose one of: quick, balanced, best"),
        (["--tiers", "kge,colbert"], "there is no tier or model 'colbert'. Choose from: kge, "),
        (["--tiers", "dual"], "friends has no texts"),
        (["--set", "dual.dim=3"], "is for the tier 'dual', but the tiers are: plausibility, rules, similarity, kge."),
        (["--set", "dim"], "--set 'dim' has no value"),
        (["--set", "dim=zero"], "dim is 'zero', expected a whole number"),
        (["--set", "dim=１２"], "dim is '１２', expected a whole number"),
        (["--budget", "３０m"], "'３０m' is not a duration"),
        (["--trials", "-1"], "-1 trials were asked for, expected 0 for none, or more."),
        (["--set", "dim=true"], "dim is True, expected a whole number"),
        (["--tiers", "plausibility", "--set", "linked=no"], "linked is 'no', expected true or false."),
        (["--set", "colour=red"], "there is no setting 'colour'"),
    ],
)
def test_settings_that_cannot_work_exit_with_2(run, triples, tmp_path, options, message):
    code, _, err = run("fit", triples, "--out", tmp_path / "run", *options)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_setting_that_only_language_models_have_is_told_with_its_prefix(run, likes, tmp_path):
    code, _, err = run("fit", likes, "--out", tmp_path / "run", "--tiers", "kge,dual,cross", "--set", "base=tiny")
    assert code == 2
    assert "kge has no setting 'base', but other tiers have." in " ".join(err.split())
    assert "Say which is meant: --set dual.base=..., --set cross.base=..." in " ".join(err.split())


def test_a_part_of_a_tier_is_switched_off(run, triples, tmp_path):
    options = ("--tiers", "kge,plausibility", *QUICK, "--set", "plausibility.linked=false")
    code, _, err = run("fit", triples, *options, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    saved = json.loads((tmp_path / "run" / "tiers" / "plausibility" / "model.json").read_text())
    assert saved["settings"] == {"completeness": True, "anchor": True, "signature": True, "linked": False}


def test_a_folder_of_another_graph_or_other_settings_is_left_alone(run, triples, tmp_path):
    run("fit", triples, *QUICK, "--out", tmp_path / "run")
    plan = (tmp_path / "run" / "plan.json").read_bytes()
    code, _, err = run("fit", triples, "--set", "epochs=2", "--set", "dim=5", "--out", tmp_path / "run")
    assert (code, "is already trained with dim 4, not 5" in err) == (2, True)
    assert (tmp_path / "run" / "plan.json").read_bytes() == plan
    triples.write_text(triples.read_text() + "new\tknows\te1\n")
    code, _, err = run("fit", triples, *QUICK, "--out", tmp_path / "run")
    assert (code, "holds a run on another graph" in err) == (2, True)
