"""A cross encoder that learns which texts match before it reads pairs."""

import numpy as np
import pytest
import torch

from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.text import CrossEncoder
from cascader.models.text.base_model import load_base_model
from cascader.models.text.heads import MatchingHead, MatchScorer, MatchTraining
from cascader.models.text.pairs import PairEncoder, Pairs
from cascader.models.text.text_model import GraphTexts


@pytest.fixture
def likes():
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefgh" for b in "uvw"]
    return KnowledgeGraph.from_triples(rows, name="likes")


@pytest.fixture
def encoder(likes, tiny_model):
    base = load_base_model(tiny_model)
    return PairEncoder(base, GraphTexts.of(likes, base, max_tokens=16), split=base.layer_count - 1)


def test_the_context_of_a_text_alone_is_its_context_in_a_pair(encoder):
    pairs = Pairs(np.array([0, 0]), np.array([1, 1]), np.array([4, 9]))
    _, first, anchor, candidate = encoder.eval()(pairs).chunk(4, dim=1)
    alone_first, alone = encoder.contexts(0, np.array([1, 4, 9]))
    torch.testing.assert_close(first, alone_first.expand(2, -1))
    torch.testing.assert_close(anchor, alone[:1].expand(2, -1))
    torch.testing.assert_close(candidate, alone[1:])


@pytest.mark.parametrize("cached_bytes", [512 << 20, 0], ids=["against all entities", "against some"])
def test_matching_learns_which_texts_can_be_answers(likes, encoder, monkeypatch, cached_bytes):
    monkeypatch.setattr("cascader.models.text.heads._CACHED_BYTES", cached_bytes)
    monkeypatch.setattr("cascader.models.text.heads._COMPARED", 6)
    torch.manual_seed(0)
    match = MatchScorer(encoder.width)
    matching = MatchTraining(match, encoder, likes, seed=0)
    before, *_, after = (np.mean(list(matching.steps(epoch))) for epoch in range(1, 40))
    assert after < 0.8 * before
    first, contexts = encoder.contexts(0, np.arange(len(likes.entities)))
    asked = likes.query("abc a", "likes").anchors
    with torch.inference_mode():
        match.eval()
        of_question = match.questions(first[None], contexts[torch.from_numpy(asked).long()])
        scores = (of_question @ match.candidates(contexts).T)[0].numpy()
    is_answer = np.array([entity.id.startswith("xyz") for entity in likes.entities])
    assert scores[is_answer].mean() > scores[~is_answer].max()


def test_an_epoch_asks_every_question_once_and_one_relation_at_a_time(likes, encoder):
    matching = MatchTraining(MatchScorer(encoder.width), encoder, likes, seed=0)
    batches = list(matching._batches(np.random.default_rng(0)))
    questions = Queries.from_triples(likes.train).unique()[0]
    assert sorted(np.concatenate(batches)) == list(range(len(questions)))
    assert all(len(set(questions.predicts_tail[places])) == 1 for places in batches)
    assert matching.step_count == len(batches)


def test_the_score_of_a_pair_starts_as_no_correction(encoder):
    head = MatchingHead(encoder.width, relation_count=1).eval()
    read = torch.randn(3, 4 * encoder.width)
    _, first, anchor, candidate = read.chunk(4, dim=1)
    products = head.match.questions(first, anchor) * head.match.candidates(candidate)
    torch.testing.assert_close(head(read), products.sum(dim=1))


def test_where_several_layers_see_the_pair_there_is_nothing_to_match(likes, tiny_model):
    with pytest.raises(SettingsError, match="2 layers see the pair.*split_layer=1"):
        CrossEncoder(base=tiny_model, split_layer=0, pretraining_epochs=1, rounds=1).fit(likes)
