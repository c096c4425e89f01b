"""Runs that are made in Python."""

import pytest

import cascader
from cascader.errors import SettingsError


@pytest.fixture
def kge(toy):
    return cascader.ComplEx(dim=4, epochs=2).fit(toy)


def test_a_run_that_was_saved_answers_as_before_when_it_is_loaded(toy, kge, tmp_path):
    saved = cascader.save_run(tmp_path / "run", toy, {"kge": kge})
    loaded = cascader.load_run(tmp_path / "run")
    assert saved.kg.data_hash == loaded.kg.data_hash == toy.data_hash
    assert loaded.predict("aspirin", "treats") == saved.predict("aspirin", "treats")


def test_a_finished_run_is_not_overwritten(toy, kge, tmp_path):
    cascader.save_run(tmp_path / "run", toy, {"kge": kge})
    with pytest.raises(SettingsError, match="holds a finished run already. Name another folder"):
        cascader.save_run(tmp_path / "run", toy, {"kge": kge})


@pytest.mark.parametrize(("tier", "message"), [("ComplEx", "there is no tier 'ComplEx'"), (None, "a run needs a tier")])
def test_tiers_must_have_the_names_that_runs_know(toy, kge, tmp_path, tier, message):
    with pytest.raises(SettingsError, match=f"{message}. Name them among: kge, kge2, dual, cross."):
        cascader.save_run(tmp_path / "run", toy, {} if tier is None else {tier: kge})
    assert not (tmp_path / "run").exists()
