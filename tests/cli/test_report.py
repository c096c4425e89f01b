"""`cascader report` on a run with one tier, and on one that is not there."""

import json

import pytest


@pytest.fixture
def fitted(run, triples, tmp_path):
    folder = tmp_path / "run"
    code, _, err = run("fit", triples, "--out", folder, "--tiers", "kge", "--set", "dim=4", "--set", "epochs=2")
    assert code == 0, err
    return folder


def test_the_report_of_one_tier_is_written_into_the_run(run, fitted):
    assert run("evaluate", fitted)[0] == 0
    code, out, err = run("report", fitted)
    assert (code, err) == (0, "")
    page = fitted / "report" / "report.html"
    tables = page.with_name("tables")
    assert out == f"Written to {page} and {page.with_suffix('.json')}; each table and chart to {tables}/*.csv.\n"
    numbers = json.loads(page.with_suffix(".json").read_text())
    assert [row["name"] for row in numbers["main_table"]["rows"]] == ["kge-complex"]
    assert numbers["tiers"]["rows"][0]["parameters"] > 0
    assert numbers["tiers"]["rows"][0]["bytes"] > 0
    assert "only one tier" in numbers["pareto"]["skipped"]


def test_a_run_that_was_never_measured_has_a_report_too(run, fitted, tmp_path):
    code, _, err = run("report", fitted, "--out", tmp_path / "elsewhere")
    assert (code, err) == (0, "")
    assert "cascader evaluate" in (tmp_path / "elsewhere" / "report.html").read_text()


def test_a_folder_without_a_run_is_an_error_in_one_sentence(run, tmp_path):
    code, _, err = run("report", tmp_path)
    assert code == 2
    assert "holds no complete run" in err
