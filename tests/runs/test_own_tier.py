"""A tier of one's own: a class with the protocol, registered here, does all that the built-in ones do."""

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from fastapi.testclient import TestClient

import cascader
from cascader import Candidates, DataError, KnowledgeGraph, Queries, SettingsError
from cascader.models.history import TrainingHistory
from cascader.models.settings import Settings
from cascader.models.training import TrainingCost
from cascader.serve import create_app


@cascader.register
class Alphabet:
    """Likes entities whose names come early in the alphabet; inherits nothing, and has no epochs."""

    name: ClassVar[str] = "alphabet"
    tier: ClassVar[str] = "alphabet"
    reads_pairs: ClassVar[bool] = False
    needs_texts: ClassVar[bool] = False
    settings: Settings
    history_: TrainingHistory

    def __init__(self):
        self.settings, self.history_ = Settings(), TrainingHistory()

    @property
    def parameter_count(self):
        return len(self.scores_)

    def fit(self, kg, *, folder=None, time_limit=None, earlier=None):
        order = np.argsort([entity.name for entity in kg.entities])
        self.scores_ = np.empty(len(order), dtype=np.float32)
        self.scores_[order] = np.linspace(1, 0, len(order), dtype=np.float32)
        return self

    def score_all(self, queries):
        return np.tile(self.scores_, (len(queries), 1))

    def score(self, queries, candidates):
        return self.scores_[candidates.ids]

    def save(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        content = {"format": 1, "model": self.name, "scores": self.scores_.tolist()}
        (Path(folder) / "model.json").write_text(json.dumps(content))

    @classmethod
    def load(cls, folder, kg):
        model = cls()
        model.scores_ = np.array(json.loads((Path(folder) / "model.json").read_text())["scores"], dtype=np.float32)
        return model

    def for_new_entities(self, entities, kg, nearness):
        return self

    def describe(self):
        return {"model": self.name, "settings": {}, "training": self.history_.summary()}

    def dry_run(self, kg, earlier=None):
        self.fit(kg)
        return TrainingCost(0.0, epoch=0.0, look=0.0, epochs=1, valid_every=1, parameters=self.parameter_count)


@pytest.fixture(scope="module")
def kg():
    facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(6) for j in range(5)]
    facts = [facts[place] for place in np.random.default_rng(0).permutation(len(facts))]
    return KnowledgeGraph.from_triples(facts[:20], valid=facts[20:25], test=facts[25:], name="own")


@pytest.fixture(scope="module")
def run(kg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "own"
    return cascader.fit(kg, folder, tiers=["kge", "alphabet"], settings={"kge": {"dim": 4, "epochs": 2}})


def test_it_is_fitted_and_saved_as_a_tier_of_a_run(run):
    assert {name: model.name for name, model in run.tiers.items()} == {"kge": "complex", "alphabet": "alphabet"}
    assert run.folder.has_tier("alphabet")


def test_it_is_loaded_with_the_same_scores(run, kg):
    queries = Queries.from_triples(kg.test)
    loaded = cascader.load_run(run.folder.path).tier("alphabet")
    np.testing.assert_array_equal(loaded.score_all(queries), run.tier("alphabet").score_all(queries))


def test_it_predicts_alone_and_in_the_cascade(run, kg):
    alone = cascader.Predictor(kg, run.tier("alphabet")).predict("drug 0", "treats", top=3)
    assert [answer.name for answer in alone] == sorted(answer.name for answer in alone)
    assert {trial.tiers for trial in run.tuned().trials} == {("kge",), ("kge", "alphabet")}
    assert len(run.predict("drug 0", "treats", top=3)) == 3


def test_it_is_measured_and_reported(run):
    evaluation = run.evaluate(tiers=["alphabet"])
    assert evaluation.name == "alphabet-alphabet"
    evaluation.save(run.folder.path / "results")
    assert "alphabet" in run.report().read_text(encoding="utf-8")


def test_it_is_served(run):
    with TestClient(create_app(run), base_url="http://127.0.0.1") as client:
        tiers = client.get("/api/graph").json()["tiers"]
        assert [tier["name"] for tier in tiers] == ["kge", "alphabet"]
        answer = client.post("/api/answer", json={"entity": "drug 0", "relation": "treats"})
        assert answer.status_code == 200


def test_a_budget_plans_it_as_any_other(kg, tmp_path):
    run = cascader.fit(
        kg, tmp_path / "planned", tiers="kge,alphabet", budget="60s", settings={"kge": {"dim": 4, "epochs": 2}}
    )
    assert list(run.tiers) == ["kge", "alphabet"]


def test_a_class_that_breaks_the_contract_is_named_with_what_was_expected():
    class Halfway:
        name = "halfway"

        def score_all(self, queries):
            return np.zeros((1, 1), np.float32)

    with pytest.raises(SettingsError, match=r"Halfway cannot be registered.*fit is missing, expected the method fit\("):
        cascader.register(Halfway)


def test_a_tier_that_scores_nan_or_a_wrong_shape_is_named(kg):
    class Broken(Alphabet):
        def score_all(self, queries):
            return np.full((len(queries), 3), np.nan, dtype=np.float32)

    model = Broken().fit(kg)
    with pytest.raises(DataError, match=r"the tier alphabet returned NaN for 3 of 3 scores"):
        cascader.Predictor(kg, model).predict("drug 0", "treats")
    model.score_all = lambda queries: np.zeros((len(queries), 3), dtype=np.float32)
    with pytest.raises(DataError, match=r"the tier alphabet returned scores of shape \(1, 3\), expected \(1, 11\)"):
        cascader.Predictor(kg, model).predict("drug 0", "treats")


def test_candidates_are_scored_as_all_entities_are(run, kg):
    queries, candidates = Queries.from_triples(kg.test)[:2], Candidates.from_lists([[0, 3], [1]])
    model = run.tier("alphabet")
    np.testing.assert_array_equal(
        model.score(queries, candidates), model.score_all(queries)[candidates.rows, candidates.ids]
    )
