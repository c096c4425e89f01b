"""Settings: their bounds, their spelling, the signatures and reprs that are made from them, and presets."""

import inspect
import pydoc
from dataclasses import dataclass, fields
from typing import Annotated, Literal, get_type_hints

import pytest

from cascader.datasets import CATALOG
from cascader.errors import SettingsError
from cascader.models import model_class, model_names
from cascader.models.embeddings import ComplEx, EmbeddingSettings, RotatE, TransE
from cascader.models.embeddings.embedding import EmbeddingOptions
from cascader.models.plausibility import PlausibilityOptions, PlausibilitySettings
from cascader.models.settings import PRESETS, SIZES, Between, Settings, preset, read_presets
from cascader.models.text import CrossSettings, DualEncoder, DualSettings, PooledSettings
from cascader.models.text.settings import CrossOptions, DualOptions, PooledOptions


@dataclass(frozen=True)
class Few(Settings):
    size: Annotated[int, Between(1, 9)] = 2
    rate: Annotated[float, Between(0, 1)] = 0.5
    kind: Literal["a", "b"] = "a"
    path: str = ""
    is_on: bool = True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size is 0, expected a whole number from 1 to 9."),
        ({"size": True}, "size is True, expected a whole number from 1 to 9."),
        ({"size": 2.0}, "size is 2.0, expected a whole number from 1 to 9."),
        ({"rate": 1.5}, "rate is 1.5, expected a number from 0 to 1."),
        ({"rate": float("nan")}, "rate is nan, expected a number from 0 to 1."),
        ({"kind": "c"}, "kind is 'c', expected one of: a, b."),
        ({"path": 3}, "path is 3, expected a string."),
        ({"is_on": "yes"}, "is_on is 'yes', expected true or false."),
        ({"is_on": 1}, "is_on is 1, expected true or false."),
        (
            {"siez": 3},
            "there is no setting 'siez'. Did you mean 'size'? The settings are: size, rate, kind, path, is_on.",
        ),
        ({"xyz": 3}, "there is no setting 'xyz'. The settings are: size, rate, kind, path, is_on."),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(settings, message):
    with pytest.raises(SettingsError) as caught:
        Few.of(settings)
    assert str(caught.value) == message


def test_a_whole_number_is_also_a_number():
    assert Few(rate=1).rate == 1


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("optimiser", "optimizer"),
        ("regulariser", "regularizer"),
        ("regulariser_weight", "regularizer_weight"),
        ("regulariser_power", "regularizer_power"),
    ],
)
def test_british_spelling_is_answered_with_the_american_name(british, american):
    with pytest.raises(SettingsError, match=f"no setting '{british}'. Use the American spelling: {american}."):
        ComplEx(**{british: 1})


@pytest.mark.parametrize("name", model_names())
def test_the_signature_lists_every_setting_with_the_default_of_its_class(name):
    kind = model_class(name)
    parameters = inspect.signature(kind).parameters
    assert {name: p.default for name, p in parameters.items()} == kind().settings.as_dict()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters.values())


def test_help_shows_the_settings():
    assert "learning_rate: float = 0.001" in pydoc.render_doc(TransE, renderer=pydoc.plaintext)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (EmbeddingOptions, EmbeddingSettings),
        (PlausibilityOptions, PlausibilitySettings),
        (DualOptions, DualSettings),
        (CrossOptions, CrossSettings),
        (PooledOptions, PooledSettings),
    ],
)
def test_the_typed_keywords_are_the_settings(options, settings):
    assert get_type_hints(options) == settings.kinds()
    assert list(get_type_hints(options)) == [field.name for field in fields(settings)]


def test_the_repr_is_the_call_with_the_settings_that_differ_from_the_defaults():
    assert repr(ComplEx(dim=4)) == "ComplEx(dim=4)"
    assert repr(RotatE(loss="negative-sampling")) == "RotatE()"  # its own default
    assert repr(RotatE(loss="1-vs-all", seed=3)) == "RotatE(loss='1-vs-all', seed=3)"
    assert repr(DualEncoder()) == "DualEncoder()"


@pytest.mark.parametrize("dataset", ["", *CATALOG])
@pytest.mark.parametrize("model", model_names())
def test_balanced_lies_between_quick_and_best(model, dataset):
    settings = [model_class(model)(**preset(model, name, dataset)).settings for name in PRESETS]
    for name in ("dim", "max_tokens", "epochs", "rounds"):
        values = [getattr(settings, name) for settings in settings if hasattr(settings, name)]
        assert values == sorted(values)


def test_presets_are_settings_that_exist_of_models_that_exist():
    for dataset, models in read_presets().items():
        for model, presets in models.items():
            assert set(presets) <= set(PRESETS)
            for name in presets:
                model_class(model)(**preset(model, name, dataset, SIZES.get(dataset, 0)))


EMBEDDINGS = ("complex", "rescal", "transe", "rotate")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("model", EMBEDDINGS)
class TestSizes:
    @pytest.mark.parametrize("entity_count", [10_000, 1_000_000])
    def test_a_large_graph_is_compared_with_a_sample_and_an_optimizer_that_skips_the_rest(
        self, model, name, entity_count
    ):
        settings = model_class(model)(**preset(model, name, "mine", entity_count)).settings
        assert (settings.loss, settings.optimizer) == ("1-vs-sample", "adagrad")

    def test_a_small_graph_is_compared_with_all_entities_whatever_its_name(self, model, name):
        everywhere = preset(model, name)
        assert everywhere == preset(model, name, "huge") == preset(model, name, "mine", 9_999)
        assert model_class(model)(**everywhere).settings.loss == "1-vs-all"

    def test_a_graph_with_settings_of_its_own_keeps_them(self, model, name):
        assert preset(model, name, "wn18rr", 40_943) == preset(model, name, "wn18rr")


def test_the_larger_the_graph_the_smaller_its_vectors():
    for name in PRESETS:
        assert preset("complex", name, "mine", 10**6)["dim"] < preset("complex", name, "mine", 10**4)["dim"]


def test_a_kind_without_presets_is_the_same_under_each_of_them():
    assert [preset("frequency", name) for name in PRESETS] == [{}, {}, {}]


def test_small_graphs_have_presets_of_their_own():
    rounds = [preset("cross", "quick", "mine", count).get("queries_per_round") for count in (135, 499, 500, 5000)]
    assert rounds == [512, 512, None, None]
    assert preset("cross", "best", "mine", 135) == preset("cross", "best", "mine", 5000)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(SettingsError, match="there is no preset 'slow'. Choose one of: quick, balanced, best"):
        preset("complex", "slow")
