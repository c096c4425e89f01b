"""The registry: the built-in models, a model of one's own, and what is said of a class that is none."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pytest
import torch

from cascader.errors import DataError, SettingsError
from cascader.models import ClosedFormModel, Frequency, load_model, model_class, model_names, register, registry
from cascader.models.registry import contract_violations
from cascader.models.settings import Between, Settings
from tests.contracts import ModelContract


@dataclass(frozen=True)
class DegreeSettings(Settings):
    power: Annotated[float, Between(0, 10)] = 1.0


class Degree(ClosedFormModel):
    """A closed-form tier: scores an entity by its number of triples."""

    name = "degree"
    tier = "degree"
    settings_class: ClassVar[type[Settings]] = DegreeSettings
    settings: DegreeSettings

    def _fit(self, kg, seconds):
        self.scores_ = (kg.degrees() ** self.settings.power).astype(np.float32)

    def score_all(self, queries):
        return np.tile(self.scores_, (len(queries), 1))

    def score(self, queries, candidates):
        return self.scores_[candidates.ids]

    def _tensors(self):
        return {"scores": torch.from_numpy(self.scores_)}

    def _take_tensors(self, tensors: Mapping[str, torch.Tensor], kg, folder: Path):
        self.scores_ = tensors["scores"].numpy()


@pytest.fixture(autouse=True, scope="module")
def registered():
    register(Degree)
    yield
    del registry._REGISTERED["degree"]


class TestARegisteredModel(ModelContract):
    def make(self, kg):
        return model_class("degree")(power=0.5).fit(kg)

    def test_a_dry_run_says_what_fitting_takes(self, toy):
        model = Degree()
        cost = model.dry_run(toy)
        assert cost.most == cost.least == cost.preparing > 0
        assert cost.parameters == len(toy.entities)
        assert model.score_all(toy.query("aspirin", "treats")).shape == (1, len(toy.entities))

    def test_it_cannot_answer_about_new_entities_and_says_so(self, scorer, toy):
        with pytest.raises(DataError, match="degree cannot answer questions about entities that toy does not have"):
            scorer.for_new_entities(toy.entities[:1], toy, None)

    def test_its_files_say_what_it_is(self, scorer, tmp_path):
        scorer.save(tmp_path)
        saved = json.loads((tmp_path / "model.json").read_text())
        assert (saved["model"], saved["settings"]) == ("degree", {"power": 0.5})


@pytest.mark.parametrize("name", model_names())
def test_every_built_in_model_keeps_the_contract(name):
    kind = model_class(name)
    assert kind.name == name
    assert contract_violations(kind) == []


def test_only_cross_and_pooled_encoders_read_pairs_and_only_language_models_need_texts():
    built_in = [model_class(name) for name in registry._BUILT_IN]
    assert {kind.name for kind in built_in if kind.reads_pairs} == {"pooled", "cross"}
    assert {kind.name for kind in built_in if kind.needs_texts} == {"dual", "context", "late", "pooled", "cross"}
    tiers = {"frequency", "plausibility", "rules", "similarity", "kge", "dual", "late", "pooled", "cross"}
    assert {kind.tier for kind in built_in} == tiers


def test_importing_the_registry_loads_neither_torch_nor_transformers():
    code = "import json, sys, cascader.models.registry; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers"} & set(json.loads(loaded))


def test_registering_twice_changes_nothing_and_returns_the_class():
    assert register(Degree) is Degree
    assert model_names().count("degree") == 1


class TestBadInput:
    def test_a_class_that_lacks_nearly_everything_is_told_what(self):
        class Bare:
            name = "bare"
            reads_pairs = "no"

            def fit(self, kg):
                return self

        with pytest.raises(SettingsError) as caught:
            register(Bare)
        message = str(caught.value)
        assert message.startswith("Bare cannot be registered as a model: ")
        for problem in (
            "tier is None, expected a class variable of type str",
            "reads_pairs is 'no', expected a class variable of type bool",
            "settings is missing, expected an attribute or property of type Settings",
            "fit does not take folder, time_limit, earlier, expected fit(kg, folder, time_limit, earlier)",
            "score is missing, expected the method score(queries, candidates)",
            "dry_run is missing, expected the method dry_run(kg, earlier)",
        ):
            assert problem in message
        assert "bare" not in model_names()

    def test_a_base_class_whose_method_is_not_written(self):
        class Half(Degree):
            name = "half"
            score = ClosedFormModel.score

        with pytest.raises(SettingsError, match="score is missing, expected the method score"):
            register(Half)

    def test_a_name_that_is_taken(self):
        class Other(Degree):
            """Another class of the same name."""

        with pytest.raises(SettingsError, match="Other is named 'degree', but .*:Degree is already. Choose another"):
            register(Other)

        class Mine(Frequency):
            """A built-in name."""

        with pytest.raises(SettingsError, match="Mine is named 'frequency', but cascader.models.frequency:Frequency"):
            register(Mine)

    def test_an_unknown_name(self):
        with pytest.raises(SettingsError, match="there is no model 'complx'. The registered names are: frequency, "):
            model_class("complx")

    def test_a_saved_model_that_is_not_registered(self, toy, tmp_path):
        Frequency().fit(toy).save(tmp_path)
        saved = json.loads((tmp_path / "model.json").read_text())
        (tmp_path / "model.json").write_text(json.dumps({**saved, "model": "oracle"}))
        with pytest.raises(DataError, match="of the kind 'oracle', which is not registered. .* must be imported first"):
            load_model(tmp_path, toy)

    def test_a_model_of_another_class_or_format(self, toy, tmp_path):
        Frequency().fit(toy).save(tmp_path)
        with pytest.raises(DataError, match="holds the model 'frequency', expected 'degree'"):
            Degree.load(tmp_path, toy)
        (tmp_path / "model.json").write_text('{"format": 99, "model": "frequency"}')
        with pytest.raises(DataError, match="has format 99 and model 'frequency', expected format 1"):
            load_model(tmp_path, toy)
