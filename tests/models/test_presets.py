"""Presets: every kind has all of them, and they are in order."""

import pytest

from cascader.datasets import CATALOG
from cascader.errors import SettingsError
from cascader.models import model_class, model_names
from cascader.models.presets import PRESETS, preset, read_presets


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
                model_class(model)(**preset(model, name, "" if dataset == "any" else dataset))


def test_a_kind_without_presets_is_the_same_under_each_of_them():
    assert [preset("frequency", name) for name in PRESETS] == [{}, {}, {}]


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(SettingsError, match="there is no preset 'slow'. Choose one of: quick, balanced, best"):
        preset("complex", "slow")
