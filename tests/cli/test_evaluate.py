"""`cascader evaluate`: each tier alone, their sums, the cascade, and what a budget leaves of it."""

import json
import shutil

import pytest

from cascader.records import write_record
from cascader.scoring import ScoreStore
from cascader.scoring.engine import FileShard
from cascader.storage import read_parquet

QUICK = ("--set", "epochs=2", "--set", "dim=4")
#: What is measured, what the result is called, and what it tells of itself.
MEASURED = {
    "kge": ("kge-complex", {"model", "settings"}),
    "dual": ("dual-contrastive", {"model", "settings"}),
    "cross": ("cross-listwise", {"first", "second", "alpha", "top"}),
    "kge,dual": ("kge+dual-complex-contrastive", {"tiers", "first", "later"}),
    "kge,dual,cross": ("kge+dual+cross-complex-contrastive-listwise", {"first", "second", "alpha", "top"}),
}


def saved(folder, name):
    return json.loads((folder / "results" / f"{name}.json").read_text())


@pytest.mark.parametrize("tiers", MEASURED)
def test_tiers_are_measured_alone_and_added_up(run, three_tiers, tiers):
    code, out, err = run("evaluate", three_tiers, "--tiers", tiers, "--split", "valid", "--top", "3")
    assert (code, err) == (0, "")
    name, about = MEASURED[tiers]
    result = saved(three_tiers, name)
    assert (result["name"], result["split"]) == (name, "valid")
    assert set(result["about"]) >= about
    assert f"{result['mrr']:.4f}" in out


def test_the_weights_of_a_sum_can_be_those_of_the_paper(run, three_tiers):
    options = ("--tiers", "kge,dual", "--split", "valid", "--weights", "alpha", "--name", "as-in-the-paper")
    code, out, err = run("evaluate", three_tiers, *options)
    assert (code, err) == (0, "")
    assert "The weight of kge against dual: " in out
    assert set(saved(three_tiers, "as-in-the-paper")["about"]) == {"first", "second", "alpha"}


@pytest.mark.parametrize("weights", ["tuned", "paper"])
def test_a_cascade_of_some_tiers_is_tuned_without_touching_that_of_all(run, three_tiers, weights):
    before = (three_tiers / "tuning.json").read_bytes()
    options = ("--tiers", "kge,cross", "--split", "valid", "--weights", weights, "--name", weights)
    assert run("evaluate", three_tiers, *options)[0] == 0
    assert set(saved(three_tiers, weights)["about"]["tiers"]) <= {"kge", "cross"}
    assert (three_tiers / "tuning.json").read_bytes() == before


def test_weights_that_valid_has_chosen_are_kept_and_not_chosen_again(run, three_tiers, monkeypatch):
    options = ("--tiers", "kge,dual,cross", "--split", "valid", "--top", "3")
    assert run("evaluate", three_tiers, *options, "--name", "first")[0] == 0
    monkeypatch.setattr("cascader.runs.measurement.best_weighted_sum", None)
    monkeypatch.setattr("cascader.runs.measurement.best_reranking", None)
    assert run("evaluate", three_tiers, *options, "--name", "again")[0] == 0
    first, again = saved(three_tiers, "first"), saved(three_tiers, "again")
    assert (first["mrr"], first["about"]) == (again["mrr"], again["about"])


def test_the_cascade_is_measured_by_default_with_what_each_tier_cost(run, three_tiers):
    code, out, err = run("evaluate", three_tiers)
    assert (code, err) == (0, "")
    result = saved(three_tiers, "cascade")
    assert result["split"] == "test"
    assert result["command"] == f"cascader evaluate {three_tiers}"
    assert f"{result['mrr']:.4f}" in out
    assert list(result["about"]["costs"])[0] == "kge"


def test_a_budget_of_no_pairs_leaves_the_tier_that_reads_out(run, three_tiers):
    code, out, _ = run("evaluate", three_tiers, "--pairs", "0", "--name", "cheap")
    assert (code, "Estimated: 0 pairs to read" in out) == (0, True)
    assert "cross" not in saved(three_tiers, "cheap")["about"]["costs"]


def test_why_the_first_tier_answers_alone_is_said(run, three_tiers):
    path = three_tiers / "tuning.json"
    record = json.loads(path.read_text())
    for trial in record["trials"][1:]:
        trial["p_value"] = 0.9
    write_record(path, {name: value for name, value in record.items() if name != "sha256"})
    assert "alone: on valid, what later ones add may be chance." in " ".join(run("evaluate", three_tiers)[1].split())
    assert "alone: no later one fits the budget." in run("evaluate", three_tiers, "--pairs", "0")[1]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_two_processes_read_what_one_reads_and_give_the_same_ranks(run, three_tiers, tmp_path, monkeypatch):
    monkeypatch.setattr(ScoreStore.__init__, "__defaults__", (20,))  # pairs a shard, so that both get some
    shutil.rmtree(three_tiers / "scores")
    (three_tiers / "tuning.json").unlink()
    folders = {processes: shutil.copytree(three_tiers, tmp_path / f"by-{processes}") for processes in (1, 2)}

    def evaluated(processes):
        folder = folders[processes]
        code, _, err = run("evaluate", folder, "--processes", processes)
        assert (code, err) == (0, "")
        trials = json.loads((folder / "tuning.json").read_text())["trials"]
        for trial in trials:
            del trial["seconds_per_query"]  # measured
        shards = sorted(path.relative_to(folder) for path in (folder / "scores").rglob("*.safetensors"))
        return trials, shards, read_parquet(folder / "results" / "cascade.ranks.parquet")

    expected = evaluated(1)
    assert len(expected[1]) > 2
    monkeypatch.setattr(FileShard, "keep", lambda *_: pytest.fail("a shard was scored in this process"))
    assert evaluated(2) == expected


def test_two_runs_are_added_up(run, triples, tmp_path):
    for model in ("complex", "transe"):
        assert run("fit", triples, "--model", model, *QUICK, "--out", tmp_path / model)[0] == 0
    code, out, _ = run("evaluate", tmp_path / "complex", "--with", tmp_path / "transe", "--split", "valid")
    assert code == 0
    assert "Weighed on valid, all at once: Cascade(kge" in out
    assert (tmp_path / "complex" / "results" / "kge+kge-complex-transe.json").exists()


def test_a_folder_without_a_run(run, tmp_path):
    code, _, err = run("evaluate", tmp_path)
    assert (code, "holds no complete run. Make one with: cascader fit" in err) == (2, True)


def test_a_folder_that_is_not_there_is_called_that(run, tmp_path):
    code, _, err = run("evaluate", tmp_path / "gone")
    assert code == 2
    assert f"there is no folder {tmp_path / 'gone'}. Check the address, or make a run" in " ".join(err.split())


def test_a_file_in_place_of_a_run_is_called_a_file(run, triples):
    code, _, err = run("evaluate", triples)
    assert (code, "is a file, expected the folder of a run. Make one: cascader fit" in " ".join(err.split())) == (
        2,
        True,
    )


def test_a_run_of_another_format(run, triples, tmp_path):
    run("fit", triples, *QUICK, "--out", tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "format": 99}))
    code, _, err = run("evaluate", tmp_path / "run")
    assert (code, "is a run in format 99, written by another version of cascader; this one reads format 3" in err) == (
        2,
        True,
    )
