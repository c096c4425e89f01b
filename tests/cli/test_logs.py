"""What is printed beside results: progress without a terminal, -v, -q and the log."""

import json

import pytest

QUICK = ("--tiers", "kge", "--set", "epochs=6", "--set", "dim=4")


@pytest.fixture
def fit(run, triples, tmp_path):
    """Fit a run in a moment, with more options; return code, output and errors."""
    return lambda *options: run("fit", triples, *QUICK, "--out", tmp_path / "run", *options)


def test_settings_and_validations_are_for_those_who_want_to_know(fit, tmp_path):
    plain = fit()[1]
    assert ("learning_rate" in plain, "After epoch 3" in plain, "Trained kge" in plain) == (False, False, True)
    kept = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert {"settings", "validated", "trained"} <= {event["kind"] for event in kept}


def test_verbose_prints_them(fit):
    out = fit("-v")[1]
    assert all(words in out for words in ("learning_rate", "After epoch 3: loss", "valid MRR"))


def test_quiet_prints_results_and_errors_only(fit, run, triples):
    assert fit("-q") == (0, "", "")
    assert "friends" in run("data", "check", triples, "--quiet")[1]
    assert run("-q", "data", "check", "nowhere")[2].startswith("error: there is no file")


def test_quiet_and_verbose_exclude_each_other(run, triples):
    code, _, err = run("-q", "data", "check", triples, "-v")
    assert (code, err) == (2, "error: --quiet and --verbose exclude each other. Give one of them.\n")


def test_a_log_file_has_everything_whatever_is_printed(fit, tmp_path):
    log = tmp_path / "logs" / "fit.log"
    assert fit("--quiet", "--log-file", log)[1] == ""
    first, *lines = log.read_text().splitlines()
    assert "cascader fit" in first
    assert first[:2] == "20"
    assert any("learning_rate" in line for line in lines)
    assert any("Trained kge for 6 epochs" in line for line in lines)


def test_a_log_of_json_lines_has_values_for_programs(fit, tmp_path):
    log = tmp_path / "fit.jsonl"
    assert "Trained kge" in fit("--log-file", log, "--log-format=json")[1]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert (events[0]["kind"], events[0]["text"].startswith("cascader fit")) == ("started", True)
    (trained,) = (event for event in events if event["kind"] == "trained")
    assert (trained["stage"], trained["values"]["epochs"]) == ("kge", 6)
    validated = [event["values"] for event in events if event["kind"] == "validated"]
    assert [values["epoch"] for values in validated] == [3, 6]
    assert all(0 < values["valid_mrr"] <= 1 for values in validated)


def test_without_a_file_json_lines_go_to_standard_error(fit):
    code, out, err = fit("--log-format", "json")
    assert (code, out) == (0, "")
    assert [json.loads(line)["kind"] for line in err.splitlines()][-1] == "written"


def test_a_log_that_cannot_be_written_is_said_before_anything_starts(fit, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = fit("--log-file", tmp_path / "file" / "log")
    assert (code, "cannot write" in err, (tmp_path / "run").exists()) == (2, True, False)


def test_an_unknown_format_of_the_log_is_refused(run, triples):
    assert run("data", "check", triples, "--log-format", "xml")[0] == 2


def test_behind_two_dashes_nothing_is_an_option(run):
    code, _, err = run("data", "check", "--", "-q")
    assert (code, "there is no file or folder -q" in err) == (2, True)
