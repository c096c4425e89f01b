import numpy as np
import pytest

from cascader.errors import DataError, NotFittedError
from cascader.graph import Entity, KnowledgeGraph
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


def test_it_answers_about_new_entities_because_the_anchor_does_not_matter(toy):
    model = Frequency().fit(toy)
    new = model.for_new_entities([Entity("n", "new")], toy, None)
    np.testing.assert_array_equal(
        new.score_all(toy.query("Ann", "treats")), model.score_all(toy.query("Bob", "treats"))
    )


def test_it_is_not_asked_before_it_is_fitted_nor_about_another_graph(toy, tmp_path):
    with pytest.raises(NotFittedError, match=r"frequency has not been fitted. Call fit\(kg\)"):
        Frequency().score_all(toy.query("Ann", "treats"))
    Frequency().fit(toy).save(tmp_path)
    with pytest.raises(DataError, match="It was fitted to another graph"):
        Frequency.load(tmp_path, KnowledgeGraph.from_triples([("a", "r", "b")]))
