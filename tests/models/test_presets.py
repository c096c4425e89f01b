"""Presets: every tier has all of them, and they are in order."""

import pytest

from cascader.datasets import CATALOG
from cascader.models.embeddings import EMBEDDINGS
from cascader.models.presets import preset
from cascader.models.text import CrossSettings, DualSettings

PRESETS = ("quick", "balanced", "best")
LANGUAGE = {"dual": DualSettings, "cross": CrossSettings}


@pytest.mark.parametrize("dataset", ["", *CATALOG])
@pytest.mark.parametrize("model", [*EMBEDDINGS, *LANGUAGE])
def test_balanced_lies_between_quick_and_best(model, dataset):
    settings = [preset(model, name, dataset) for name in PRESETS]
    settings = [LANGUAGE[model].of(s) if model in LANGUAGE else EMBEDDINGS[model](**s).settings for s in settings]
    for name in ("dim", "max_tokens", "epochs", "rounds"):
        values = [getattr(settings, name) for settings in settings if hasattr(settings, name)]
        assert values == sorted(values)
