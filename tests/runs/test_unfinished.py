"""A run that is still being fitted, or was interrupted: it answers with what is there, and nothing is lost."""

import json
import time

import pytest
from safetensors.numpy import load_file

import cascader
from cascader import KnowledgeGraph, SettingsError
from cascader.runs.fit import emit_actual
from cascader.runs.plan import FitPlan, PlannedTier

TIERS = ["plausibility", "rules", "kge"]
SETTINGS = {"kge": {"dim": 4, "epochs": 4}}


@pytest.fixture(scope="module")
def kg():
    facts = [(f"drug {i}", "treats" if (i + j) % 3 else "worsens", f"disease {j}") for i in range(6) for j in range(6)]
    return KnowledgeGraph.from_triples(facts[:-6], valid=facts[-6:-3], test=facts[-3:])


def fit(kg, folder, on_event=None, **options):
    return cascader.fit(kg, folder, tiers=TIERS, settings=SETTINGS, on_event=on_event, **options)


@pytest.fixture(scope="module")
def asked(kg, tmp_path_factory):
    """A run that was asked while it was fitted: its folder, what it said then, and all events."""
    folder, said, events = tmp_path_factory.mktemp("asked") / "run", {}, []

    def ask(event):
        events.append(event)
        if event.kind == "usable":
            said.update(chosen=(folder / "parts" / "plausibility+rules" / "tuned" / "calibration.json").exists())
            run = cascader.load_run(folder)
            said.update(tiers=list(run.tiers), coming=run.metadata.coming, answers=run.predict("drug 0", "treats"))
            with pytest.raises(SettingsError, match="is still being fitted. Save it when that is done"):
                run.save(folder.parent / "copy")

    fit(kg, folder, ask)
    return folder, said, events


def test_it_answers_with_the_tiers_that_are_there_and_says_from_when_on(asked):
    _, said, events = asked
    assert (said["tiers"], said["coming"]) == (["plausibility", "rules"], ("kge",))
    assert said["answers"][0].probability is not None
    (event,) = (event for event in events if event.kind == "usable")
    assert event.text.startswith("You may ask already, after ")
    assert "Answers are those of plausibility, rules so far; they get better while training goes on" in event.text
    kinds = [(each.kind, each.stage) for each in events]
    assert kinds.index(("usable", "")) < kinds.index(("training", "kge"))


def test_whoever_asks_first_need_not_wait_until_its_tiers_are_tuned_and_calibrated(asked):
    assert asked[1]["chosen"]


def interrupted(*_):
    raise KeyboardInterrupt


def test_interrupted_while_these_are_tuned_the_same_call_tunes_them_and_says_that_one_may_ask(
    kg, tmp_path, monkeypatch
):
    folder, events = tmp_path / "run", []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("cascader.runs.run.Run.predictor", interrupted)
        fit(kg, folder)
    assert not (folder / "parts").exists()
    fit(kg, folder, events.append)
    assert (folder / "parts" / "plausibility+rules" / "tuned" / "calibration.json").exists()
    assert [event.kind for event in events].count("usable") == 1


def test_what_was_chosen_meanwhile_is_not_what_the_whole_run_uses(asked):
    folder, _, _ = asked
    run = cascader.load_run(folder)
    assert (list(run.tiers), run.metadata.coming) == (TIERS, ())
    assert (folder / "parts" / "plausibility+rules" / "tuned" / "calibration.json").exists()
    calibrations = json.loads((folder / "calibration.json").read_text())["calibrations"]
    assert all("kge" in saved["identity"] or "rules" not in saved["identity"] for saved in calibrations)


def test_a_complete_run_stays_complete_when_it_is_fitted_again(asked, kg):
    folder, _, _ = asked
    events = []
    fit(kg, folder, events.append)
    assert "usable" not in {event.kind for event in events}
    assert cascader.load_run(folder).metadata.coming == ()


def stop_at(kind, stage, error):
    def stop(event):
        if (event.kind, event.stage) == (kind, stage):
            raise error

    return stop


def weights(folder):
    return {
        f"{path.parent.name}/{name}": values.tobytes()
        for path in sorted((folder / "tiers").rglob("model.safetensors"))
        for name, values in load_file(path).items()
    }


def test_killed_it_still_answers_and_the_same_call_goes_on(asked, kg, tmp_path, caplog):
    with pytest.raises(MemoryError):
        fit(kg, tmp_path / "run", stop_at("training", "kge", MemoryError()))
    run = cascader.load_run(tmp_path / "run")
    assert "is not finished. Its answers are those of plausibility, rules; to come: kge." in caplog.text
    assert run.predict("drug 0", "treats")
    fit(kg, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(asked[0])
    assert cascader.load_run(tmp_path / "run").metadata.coming == ()


def test_interrupted_in_a_notebook_it_says_that_the_same_call_goes_on(asked, kg, tmp_path):
    events = []

    def interrupt(event):
        events.append(event)
        stop_at("validated", "kge", KeyboardInterrupt())(event)

    with pytest.raises(KeyboardInterrupt):
        fit(kg, tmp_path / "run", interrupt)
    assert events[-1].kind == "stopped"
    assert events[-1].text.startswith("Interrupted. What is finished is kept. The same call goes on from there")
    fit(kg, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(asked[0])


def test_interrupted_without_a_folder_it_says_where_it_is(asked, kg):
    events = []

    def interrupt(event):
        events.append(event)
        stop_at("training", "kge", KeyboardInterrupt())(event)

    with pytest.raises(KeyboardInterrupt):
        fit(kg, None, interrupt)
    folder = events[-1].text.split('out="')[1].split('"')[0]
    run = fit(kg, folder)
    assert weights(run.folder.path) == weights(asked[0])


def test_it_took_what_the_clock_on_the_wall_says(kg, tmp_path):
    heard, started = [], time.monotonic()
    fit(kg, tmp_path / "run", lambda event: heard.append((event, time.monotonic() - started)))
    ((finished, wall),) = (each for each in heard if each[0].kind == "finished")
    assert finished.values["seconds"] == pytest.approx(wall, abs=0.5)  # a busy machine may pause in between


def test_what_is_no_training_is_named_beside_what_was_likely():
    tiers = {"kge": PlannedTier("best", 7, 30.0, 1.0, actual_seconds=12.0, likely_seconds=15.0)}
    plan = FitPlan({}, tiers, tuning_seconds=5.0, actual_tuning_seconds=4.0)
    events = []
    with cascader.display.listening(events.append):
        emit_actual(plan, 20.0)
    assert events[0].text == (
        "Took 20 s: kge 12 s, tuning and calibration 4 s, loading and planning 4 s; 20 s was likely, 35 s the latest."
    )
