"""The layers that see pairs: without padding, they compute what they compute with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cascader.models.text.base_model import load_base_model
from cascader.models.text.pairs import JoinedPairs, PairEncoder, Pairs
from cascader.models.text.split_encoder import States, encode_cls
from cascader.models.text.text_model import GraphTexts, Tokens
from cascader.models.text.words import SharedTokens

PAIRS = Pairs(np.array([0, 0, 1, 1, 0]), np.array([0, 0, 2, 3, 1]), np.array([1, 2, 0, 0, 1]))


@pytest.fixture(params=[0, 1, 2, 4], ids="split at {}".format)
def encoder(request, tiny_model):
    """Make an encoder of four tiny layers, without dropout, so that it reads the same twice."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig.from_pretrained(tiny_model, num_hidden_layers=4)
    base = replace(load_base_model(tiny_model), encoder=BertModel(config, add_pooling_layer=False).eval())
    entities, relations = ["a b c", "d", "e b g c", ""], ["r d", "reverse of r d"]
    encoder = PairEncoder(
        base, GraphTexts(Tokens.of(entities, base, 99), Tokens.of(relations, base, 99)), request.param
    )
    if request.param:
        torch.nn.init.normal_(encoder.segment_embeddings)
        torch.nn.init.normal_(encoder.match_embeddings)
    return encoder.eval()


def test_they_give_what_they_give_with_padding(encoder):
    with torch.inference_mode():
        expected = encode_cls(encoder.upper, *encoder.lower(PAIRS))
        torch.testing.assert_close(encoder(PAIRS), expected, rtol=1e-4, atol=1e-5)


def test_they_have_the_gradients_that_they_have_with_padding(encoder):
    gradients = []
    for read in (encoder(PAIRS), encode_cls(encoder.upper, *encoder.lower(PAIRS))):
        encoder.zero_grad()
        if read.requires_grad:
            read[:, 3:].pow(2).sum().backward()
        gradients.append({name: each.grad for name, each in encoder.named_parameters() if each.grad is not None})
    for name, gradient in gradients[1].items():
        if not name.endswith("key.bias"):  # which changes nothing: with padding, its gradient is rounding
            torch.testing.assert_close(gradients[0][name], gradient, rtol=1e-3, atol=1e-5)


def test_a_text_that_pairs_share_is_there_once():
    states = States(np.array([0, 2, 5]), torch.arange(5.0)[:, None])
    texts, nothing = [(states, np.array([1, 1])), (states, np.array([1, 0]))], torch.zeros(2, 1)
    joined = JoinedPairs.of(texts, nothing, nothing, lambda order: torch.zeros(11, 2))
    assert [len(segment.rows) for segment in joined.segments] == [3, 5]
    assert joined.runs == [(1, 5), (1, 6)]
    assert joined.order.tolist() == [1, 0]
    assert joined.states()[:, 0].tolist() == [2, 3, 4, 0, 1, 2, 3, 4, 2, 3, 4]


def test_a_token_that_question_and_candidate_share_reads_differently(encoder):
    if encoder.split == 0 or not encoder.upper:
        pytest.skip("the input is one text, as in any cross encoder, or no layer sees both texts")
    shared, apart = (Pairs(np.array([0]), np.array([anchor]), np.array([2])) for anchor in (0, 3))
    with torch.inference_mode():
        before = encoder(shared), encoder(apart)
        torch.nn.init.zeros_(encoder.match_embeddings)
        after = encoder(shared), encoder(apart)
    assert not torch.allclose(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_shared_tokens_count_by_how_rare_they_are():
    texts = Tokens(np.array([0, 2, 4, 5]), np.array([7, 8, 7, 9, 7]))  # 7 is in every text, 8 and 9 are in one
    relation, anchor = Tokens(np.array([0, 1]), np.array([5])), texts.take(np.array([0]))
    candidate = Tokens(np.array([0, 3]), np.array([8, 9, 7]))
    found = SharedTokens(texts, vocabulary=10).rarity([relation, anchor, candidate])
    assert found.shape == (3 + 4 + 5, 3)  # each part between [CLS] and [SEP]
    rare = np.log(4 / 2) / np.log(4)
    assert found[:, 0].tolist() == [0] * 12
    np.testing.assert_allclose(found[3:7, 1], [0, 0, rare, 0])  # 7 is shared, and says nothing
    np.testing.assert_allclose(found[7:, 2], [0, rare, 0, 0, 0])  # 9 is as rare, and not shared
