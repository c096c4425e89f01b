"""Presets: every tier has all of them, and they are in order."""

import pytest

from cascader.datasets import CATALOG
from cascader.models.embeddings import EMBEDDINGS
from cascader.models.presets import preset
from cascader.models.text import CrossRecipe, DualRecipe

PRESETS = ("quick", "balanced", "best")
LANGUAGE = {"dual": DualRecipe, "cross": CrossRecipe}


@pytest.mark.parametrize("dataset", ["", *CATALOG])
@pytest.mark.parametrize("model", [*EMBEDDINGS, *LANGUAGE])
def test_balanced_lies_between_quick_and_best(model, dataset):
    settings = [preset(model, name, dataset) for name in PRESETS]
    recipes = [LANGUAGE[model].of(s) if model in LANGUAGE else EMBEDDINGS[model](**s).recipe for s in settings]
    for name in ("dim", "max_tokens", "epochs", "rounds"):
        values = [getattr(recipe, name) for recipe in recipes if hasattr(recipe, name)]
        assert values == sorted(values)
