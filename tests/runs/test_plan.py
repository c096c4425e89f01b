"""Plans: what a tier may take, and how they are kept."""

import json
import math
from dataclasses import replace

import pytest

from cascader.display import listening
from cascader.errors import DataError
from cascader.records import write_record
from cascader.runs.plan import FitPlan, PlannedTier, emit_actual, load_plan, save_plan

ASKED = {"preset": None, "budget": 60.0}


def plan(share=10.0):
    tiers = {name: PlannedTier("quick", 7, 30.0, 1.0, share) for name in ("kge", "dual", "cross")}
    return FitPlan(ASKED, tiers, tuning_seconds=5.0, budget=60.0, skipped={"kge2": "no time"})


def test_what_a_tier_has_not_used_goes_on_to_the_next():
    begun = plan().with_actual("kge", 4.0)
    assert begun.limit("kge") == 10.0
    assert begun.limit("dual") == 16.0
    assert begun.with_actual("dual", 16.0).limit("cross") == 10.0


def test_what_a_tier_has_overdrawn_is_missing_to_the_next():
    assert plan().with_actual("kge", 13.0).limit("dual") == 7.0
    assert plan().with_actual("kge", 100.0).limit("dual") == 0.0


def test_without_a_budget_there_is_no_limit():
    assert plan(share=None).limit("cross") == math.inf


def test_no_more_is_predicted_than_the_shares_allow():
    assert plan().seconds == 35.0
    assert plan(share=None).seconds == 95.0


@pytest.mark.parametrize(
    ("seconds", "took", "sentence"),
    [
        ((0.2, 0.4, 0.1), 2.4, "Took 3 s: tuning and calibration 1 s."),
        (
            (1.2, 1.2, 1.2),
            8.0,
            "Took 8 s: kge 1 s, dual 1 s, cross 1 s, tuning and calibration 1 s, loading and planning 2 s.",
        ),
        ((0.1, 0.1, 0.1), 0.6, "Took 1 s."),
    ],
)
def test_the_parts_of_what_it_took_do_not_add_up_to_more_than_the_whole(seconds, took, sentence):
    tuning = 1.5 if took > 1 else 0.1
    done = replace(plan(), tuning_seconds=None, actual_tuning_seconds=tuning)
    for tier, spent in zip(("kge", "dual", "cross"), seconds, strict=True):
        done = done.with_actual(tier, spent)
    heard = []
    with listening(heard.append):
        emit_actual(done, took)
    assert heard[0].text == sentence


def test_a_plan_is_read_back_by_the_same_command_only(tmp_path):
    begun = plan().with_actual("kge", 4.0)
    save_plan(begun, tmp_path)
    assert load_plan(tmp_path, ASKED) == begun
    assert load_plan(tmp_path, {**ASKED, "budget": 90.0}) is None
    assert load_plan(tmp_path / "elsewhere", ASKED) is None


def test_a_plan_of_another_format_is_made_anew(tmp_path):
    save_plan(plan(), tmp_path)
    saved = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**saved, "format": 99}))
    assert load_plan(tmp_path, ASKED) is None


def test_a_damaged_plan_is_refused(tmp_path):
    save_plan(plan(), tmp_path)
    saved = json.loads((tmp_path / "plan.json").read_text())
    changed = {**saved, "tiers": {"kge": {"colour": "red"}}}
    (tmp_path / "plan.json").write_text(json.dumps(changed))
    with pytest.raises(DataError, match="does not match the sha256 in it. Delete it to make a new one"):
        load_plan(tmp_path, ASKED)
    write_record(tmp_path / "plan.json", {name: value for name, value in changed.items() if name != "sha256"})
    with pytest.raises(DataError, match="plan.json has no tiers.kge.preset. Delete it to make a new one"):
        load_plan(tmp_path, ASKED)


def test_the_presets_are_named_once_where_all_are_the_same():
    assert plan().presets == "quick"
    other = PlannedTier("best", 1, 1.0, 1.0, None)
    mixed = FitPlan(ASKED, {**plan().tiers, "kge": other}, 0.0, None)
    assert mixed.presets == "kge best, dual quick, cross quick"
