"""Plausibility: what train says of who can be an answer, each fact left out of its own evidence."""

from cascader.models.plausibility import Plausibility
from tests.contracts import ModelContract


class TestPlausibility(ModelContract):
    def make(self, kg):
        return Plausibility().fit(kg)


class TestPlausibilityOfCompletenessAlone(ModelContract):
    def make(self, kg):
        return Plausibility(anchor=False, signature=False, linked=False).fit(kg)
