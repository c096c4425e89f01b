import numpy as np

from cascader.models import Frequency
from tests.contracts import ModelContract


class TestFrequency(ModelContract):
    def make(self, kg):
        return Frequency().fit(kg)


def test_the_most_frequent_answer_of_the_relation_comes_first(toy):
    scorer = Frequency().fit(toy)
    scores = scorer.score_all(toy.query("Ann", "prescribes"))[0]
    assert toy.entities[int(np.argmax(scores))].name == "aspirin"


def test_valid_and_test_are_never_counted(toy):
    scores = Frequency().fit(toy).score_all(toy.query("Ann", "prescribes"))[0]
    assert scores[toy.entity_index("placebo")] == 0
