"""The context encoder: what it reads beside a text, resuming, keeping, and what is said of bad input."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.evaluation import evaluate
from cascader.graph import Entity, KnowledgeGraph, KnownAnswers, Queries, Relation
from cascader.models import Frequency
from cascader.models.text import ContextEncoder
from cascader.models.text.context_towers import Facts
from tests.contracts import ModelContract
from tests.models.embeddings.test_training import line

SIZES = {"dim": 8, "epochs": 2, "neighbors": 2, "batch_size": 8}


@pytest.fixture(scope="module", params=[1, 2])
def settings(request, tiny_model):
    return {"base": tiny_model, "trainable_layers": request.param, **SIZES}


class TestAsAModel(ModelContract):
    # How a question is padded depends on those beside it.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-4, "atol": 1e-5}

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, settings):
        return ContextEncoder(**settings).fit(toy)


@pytest.mark.slow
def test_it_learns_train_by_heart(tiny_model):
    kg = line()
    none = kg.valid[:0]
    named = [Entity(entity.id, f"node {entity.id}") for entity in kg.entities]
    learnt = KnowledgeGraph("learnt", named, kg.relations, kg.train, none, none)
    asked = KnowledgeGraph("asked", named, kg.relations, none, none, kg.train)
    model = ContextEncoder(base=tiny_model, epochs=100, neighbors=0, batch_size=32, dim=32, dropout=0.0).fit(learnt)
    assert evaluate(model, asked).mrr > 2 * evaluate(Frequency().fit(kg), asked).mrr
    assert model.history_.losses[-1] < model.history_.losses[0]


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(toy, settings, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    long = {**settings, "patience": 99}
    whole = ContextEncoder(**{**long, "epochs": 6}).fit(toy)
    ContextEncoder(**{**long, "epochs": 3}).fit(toy, folder=tmp_path)
    resumed = ContextEncoder(**{**long, "epochs": 6}).fit(toy, folder=tmp_path)
    assert whole.history_.losses == resumed.history_.losses
    assert torch.equal(whole.entities_, resumed.entities_)


def test_facts_that_become_known_later_change_the_answers(toy, settings):
    model = ContextEncoder(**settings).fit(toy)
    queries = Queries.from_triples(toy.test)
    before = model.score_all(queries.with_known(toy.known(("train",))))
    after = model.score_all(queries.with_known(toy.known()))
    assert not np.array_equal(before, after)


def test_the_fact_that_answers_a_question_is_never_read_with_it():
    known = KnownAnswers(np.array([[0, 0, 1], [0, 0, 2], [3, 1, 0]], dtype=np.int32), 4, 2)
    questions = Queries.from_triples(np.array([[0, 0, 1]], dtype=np.int32), side="tail")
    sampled = Facts(known).sample(questions, np.array([0]), 10, np.random.default_rng(0))
    assert sorted(zip(sampled.relations.tolist(), sampled.ids.tolist(), strict=True)) == [(0, 2), (3, 3)]
    assert sampled.rows.tolist() == [0, 0]


def test_a_hub_gives_the_same_few_facts_every_time():
    triples = np.array([[0, 0, tail] for tail in range(1, 50)], dtype=np.int32)
    facts = Facts(KnownAnswers(triples, 50, 1))
    first, again = facts.of(np.array([0, 7]), 3), facts.of(np.array([0]), 3)
    assert first.rows.tolist() == [0, 0, 0, 1]
    assert first.ids[:3].tolist() == again.ids.tolist()
    assert first.ids[3] == 0


def test_an_entity_without_facts_is_read_by_its_text(tiny_model):
    entities = [Entity(name, f"a word such as {name}") for name in ("one", "two", "three")]
    kg = KnowledgeGraph("words", entities, (Relation("r", "before"),), [[0, 0, 1]], [], [])
    model = ContextEncoder(base=tiny_model, **SIZES).fit(kg)
    assert np.isfinite(model.score_all(kg.query("three", "before"))).all()


def test_new_entities_are_asked_about_by_their_texts(toy, settings):
    model = ContextEncoder(**settings).fit(toy)
    new = [Entity("n", "a newcomer", "that nobody knows")]
    asked = Queries(np.array([0]), np.array([0]), np.array([True]))
    scores = model.for_new_entities(new, toy, None).score_all(asked)
    assert scores.shape == (1, len(toy.entities))
    assert model.nearness(new, toy).shape == (1, len(toy.entities))


def test_more_layers_than_the_model_has_are_refused(toy, tiny_model):
    with pytest.raises(SettingsError, match="trainable_layers is 99, but .* has 2 layers. Choose from 1 to 2"):
        ContextEncoder(base=tiny_model, trainable_layers=99).fit(toy)


def test_it_says_that_it_must_be_fitted_first(toy):
    with pytest.raises(NotFittedError, match="context has not been fitted"):
        ContextEncoder().score_all(Queries.from_triples(toy.test))


def test_another_graph_is_refused(toy, settings, tmp_path):
    ContextEncoder(**settings).fit(toy).save(tmp_path)
    other = line()
    with pytest.raises(DataError, match="It was trained on another graph"):
        ContextEncoder.load(tmp_path, other)


def test_the_cost_is_estimated_without_training(toy, settings):
    cost = ContextEncoder(**settings).dry_run(toy)
    assert cost.epoch > 0
    assert cost.parameters > 0


@pytest.mark.parametrize(
    "text", ["", "…", "word " * 10_000, "ᚠᛇᚻ᛫ᛒᛦᚦ"], ids=["nothing", "no words", "10,000 words", "unknown script"]
)
def test_odd_texts_are_read(tiny_model, text):
    entities = [Entity("a", "first", text), Entity("b", "second", "a plain text"), Entity("c", "third")]
    kg = KnowledgeGraph("odd", entities, (Relation("r", "before"),), [[0, 0, 1], [1, 0, 2]], [], [])
    model = ContextEncoder(base=tiny_model, **SIZES).fit(kg)
    assert np.isfinite(model.score_all(kg.query("first", "before"))).all()
