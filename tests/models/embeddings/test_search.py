"""Searching for settings: on valid, within a time limit, resumable."""

import json

import pytest

from cascader.errors import DataError, SettingsError, TrainingError
from cascader.evaluation import evaluate
from cascader.graph import KnowledgeGraph
from cascader.models.embeddings import EMBEDDINGS, EmbeddingSettings, search_space
from cascader.models.embeddings.search import Search
from tests.models.embeddings.test_training import line

QUICK = {"epochs": 2, "valid_every": 1, "dim": 4}


@pytest.fixture
def small_space(monkeypatch):
    """Only what is quick to train."""
    space = {"learning_rate": {"low": 0.01, "high": 0.3, "log": True}, "batch_size": [8, 16]}
    monkeypatch.setattr("cascader.models.embeddings.search.search_space", lambda model: space)


def test_it_returns_the_trial_that_was_best_on_valid(small_space, tmp_path):
    kg = line()
    search = Search("complex", QUICK, kg, tmp_path)
    best = search.run(4)
    figures = [trial.valid_mrr for trial in search.trials]
    assert len(figures) == 4
    assert evaluate(best, kg, "valid").mrr == pytest.approx(max(figures))
    assert best.settings.as_dict() == EmbeddingSettings(**QUICK | search.trials[search.best].changes).as_dict()


def test_the_first_trial_changes_nothing_and_the_others_stay_in_the_space(small_space, tmp_path):
    search = Search("complex", QUICK, line(), tmp_path)
    search.run(4)
    first, *others = [trial.changes for trial in search.trials]
    assert first == {}
    assert all(0.01 <= changes["learning_rate"] <= 0.3 and changes["batch_size"] in (8, 16) for changes in others)
    assert len({changes["learning_rate"] for changes in others}) == 3


def test_interrupted_it_goes_on_to_the_same_trials(small_space, tmp_path):
    kg = line()
    whole = Search("complex", QUICK, kg, tmp_path / "whole")
    whole.run(4)
    Search("complex", QUICK, kg, tmp_path / "halves").run(2)
    resumed = Search("complex", QUICK, kg, tmp_path / "halves")
    resumed.run(4)
    seen = [[(trial.changes, trial.valid_mrr) for trial in search.trials] for search in (whole, resumed)]
    assert seen[0] == seen[1]


def test_what_the_user_has_set_is_not_changed(small_space, tmp_path):
    search = Search("complex", QUICK, line(), tmp_path, fixed={"batch_size"})
    search.run(3)
    assert {name for trial in search.trials for name in trial.changes} == {"learning_rate"}


def test_only_the_best_weights_are_kept(small_space, tmp_path):
    search = Search("complex", QUICK, line(), tmp_path)
    search.run(3)
    assert [path.name for path in tmp_path.glob("trial-*")] == [f"trial-{search.best:03d}"]
    search.discard_weights()
    assert [path.name for path in tmp_path.iterdir()] == ["trials.json"]


def test_when_the_time_is_up_it_starts_no_other_trial(small_space, tmp_path):
    search = Search("complex", QUICK, line(), tmp_path)
    search.run(50, time_limit=1e-9)
    assert len(search.trials) == 1


def test_a_diverging_trial_is_written_down_and_the_search_goes_on(small_space, tmp_path, monkeypatch):
    kind = EMBEDDINGS["complex"]
    fit = kind.fit

    def diverges_first(self, kg, **options):
        if self.settings.learning_rate == 0.1:  # the settings that the search starts from
            raise TrainingError("the loss became nan")
        return fit(self, kg, **options)

    monkeypatch.setattr(kind, "fit", diverges_first)
    search = Search("complex", QUICK, line(), tmp_path)
    search.run(2)
    assert search.trials[0].valid_mrr is None
    assert search.best == 1
    assert json.loads((tmp_path / "trials.json").read_text())["trials"][0]["valid_mrr"] is None


def test_a_search_of_other_settings_or_another_graph_is_not_gone_on_with(small_space, tmp_path):
    Search("complex", QUICK, line(), tmp_path).run(1)
    with pytest.raises(DataError, match=r"trials\.json is a search with settings .* Choose another folder"):
        Search("complex", {**QUICK, "dim": 5}, line(), tmp_path)
    with pytest.raises(DataError, match=r"trials\.json is a search with data_hash"):
        Search("complex", QUICK, line(30), tmp_path)


def test_what_cannot_be_searched_is_said(tmp_path):
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="has no valid triples to search on"):
        Search("complex", QUICK, kg, tmp_path)
    with pytest.raises(SettingsError, match="0 trials were asked for, expected at least 1"):
        Search("complex", QUICK, line(), tmp_path).run(0)


@pytest.mark.parametrize("model", EMBEDDINGS)
def test_every_setting_of_the_space_is_one_of_the_model(model):
    for name, values in search_space(model).items():
        for value in values if isinstance(values, list) else (values["low"], values["high"]):
            EMBEDDINGS[model](**{name: value})
