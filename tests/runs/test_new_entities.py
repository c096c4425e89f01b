"""Entities that the graph has never seen, asked about by their texts."""

import json

import numpy as np
import pytest
import torch

from cascader.cascade import Cascade, TopK
from cascader.errors import DataError
from cascader.graph import Candidates, Entity, KnowledgeGraph, Queries, Relation
from cascader.models.embeddings import ComplEx
from cascader.models.embeddings.embedding import NeighborEmbedding
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.models.text.reading import FrozenLayers
from cascader.runs import Predictor, for_new_entities, parse_entity


@pytest.fixture(scope="module")
def kg():
    triples = np.array([(a, 0, b) for a in range(6) for b in range(6, 12) if (a + b) % 3], dtype=np.int32)
    words = ["red", "green", "blue", "warm", "cold", "bright", "apple", "leaf", "sea", "fire", "ice", "sun"]
    entities = tuple(Entity(f"e{i}", word, f"something {word}") for i, word in enumerate(words))
    return KnowledgeGraph(
        "words", entities, (Relation("of", "is the colour of"),), triples[4:], triples[:4], triples[:0]
    )


@pytest.fixture(scope="module")
def tiers(kg, tiny_model, three_layers):
    return {
        "kge": ComplEx(dim=4, epochs=2).fit(kg),
        "dual": DualEncoder(base=tiny_model, epochs=2, dim=4).fit(kg),
        "cross": CrossEncoder(base=three_layers, split_layer=1, rounds=1, queries_per_round=8).fit(
            kg, earlier=ComplEx(dim=4, epochs=2).fit(kg)
        ),
    }


def both_sides(anchor):
    return Queries(np.array([anchor, anchor]), np.zeros(2, dtype=np.int32), np.array([True, False]))


@pytest.mark.parametrize("settings", [{}, {"trainable_layers": 1}, {"trainable_layers": 1, "objective": "star"}])
def test_a_copy_of_an_entity_gets_the_scores_of_the_entity_from_the_dual_encoder(kg, tiny_model, tmp_path, settings):
    DualEncoder(base=tiny_model, epochs=1, dim=4, **settings).fit(kg).save(tmp_path)
    dual = DualEncoder.load(tmp_path, kg)
    before = dual.score_all(both_sides(2))
    copied = [kg.entities[5], kg.entities[2]]
    assert np.allclose(dual.for_new_entities(copied, kg, None).score_all(both_sides(1)), before, atol=1e-4)
    assert dual.nearness(copied, kg)[1].argmax() == 2
    assert np.array_equal(dual.score_all(both_sides(2)), before)


def test_a_copy_of_an_entity_gets_the_scores_of_the_entity_from_the_cross_encoder(kg, tiers):
    cross, candidates = tiers["cross"], Candidates.from_lists([[6, 7, 8], [0, 1]])
    before = cross.score(both_sides(2), candidates)
    copies = cross.for_new_entities([kg.entities[5], kg.entities[2]], kg, None)
    assert np.allclose(copies.score(both_sides(1), candidates), before, atol=1e-5)
    assert np.array_equal(cross.score(both_sides(2), candidates), before)


def test_of_a_new_entity_nothing_but_its_text_is_read(kg, tiers, monkeypatch):
    cross, candidates = tiers["cross"], Candidates.from_lists([[6, 7, 8], [0, 1]])
    cross.score(both_sides(2), candidates)
    read, texts = FrozenLayers.read, []

    def counted(self, tokens, *others):
        texts.append(len(tokens))
        return read(self, tokens, *others)

    monkeypatch.setattr(FrozenLayers, "read", counted)
    cross.for_new_entities([parse_entity("pink: something pink")], kg, None).score(both_sides(0), candidates)
    assert texts == [1]


def test_an_embedding_puts_a_new_entity_where_its_neighbors_are(kg, tiers):
    kge = tiers["kge"]
    nearness = np.full((1, len(kg.entities)), -1.0, dtype=np.float32)
    nearness[0, 3] = 1.0  # so much nearer than the others that it alone counts
    estimated = NeighborEmbedding.of(kge, nearness, np.ones(len(kg.entities), dtype=bool))
    assert np.allclose(estimated.score_all(both_sides(0)), kge.score_all(both_sides(3)), atol=1e-4)
    nobody_else = np.zeros(len(kg.entities), dtype=bool)
    nobody_else[4] = True  # the nearest was never trained
    estimated = NeighborEmbedding.of(kge, nearness, nobody_else)
    assert np.allclose(estimated.score_all(both_sides(0)), kge.score_all(both_sides(4)), atol=1e-4)


def test_all_tiers_answer_about_a_new_entity_and_stay_as_they_were(kg, tiers):
    before = {name: torch.clone(tiers[name].entities_) for name in ("kge", "dual")}
    cascade = Cascade(tiers["kge"], name="kge").then(tiers["dual"], alpha=0.5, name="dual")
    cascade = cascade.then(tiers["cross"], alpha=0.5, keep=TopK(3), name="cross")
    pink = parse_entity("pink: something pink")
    predictor = Predictor(kg, for_new_entities(cascade, tiers, [pink], kg), None, new=(pink,))
    (answers,) = predictor.answer(both_sides(0)[:1], top=3)
    assert [answer.rank for answer in answers] == [1, 2, 3]
    assert [trace.tier for trace in answers[0].trace] == ["kge", "dual", "cross"]
    assert answers[0].anchor == pink
    assert answers[0].probability is None
    assert json.dumps(answers[0].as_row())
    assert all(torch.equal(before[name], tiers[name].entities_) for name in before)


def test_a_run_that_reads_no_texts_cannot_know_new_entities(kg, tiers):
    with pytest.raises(DataError, match="has no dual encoder to read it"):
        for_new_entities(Cascade(tiers["kge"], name="kge"), {"kge": tiers["kge"]}, [parse_entity("pink")], kg)
