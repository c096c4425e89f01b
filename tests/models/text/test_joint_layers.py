"""The layers that see pairs: without padding, they compute what they compute with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cascader.models.text.base_model import load_base_model
from cascader.models.text.pairs import JoinedPairs, PairEncoder, Pairs
from cascader.models.text.split_encoder import States, encode_cls
from cascader.models.text.text_model import GraphTexts, Tokens

PAIRS = Pairs(np.array([0, 0, 1, 1, 0]), np.array([0, 0, 2, 3, 1]), np.array([1, 2, 0, 0, 1]))


@pytest.fixture(params=[0, 1, 2, 4], ids="split at {}".format)
def encoder(request, tiny_model):
    """Make an encoder of four tiny layers, without dropout, so that it reads the same twice."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig.from_pretrained(tiny_model, num_hidden_layers=4)
    base = replace(load_base_model(tiny_model), encoder=BertModel(config, add_pooling_layer=False).eval())
    entities, relations = ["a b c", "d", "e f g h", ""], ["r s", "reverse of r s"]
    encoder = PairEncoder(
        base, GraphTexts(Tokens.of(entities, base, 99), Tokens.of(relations, base, 99)), request.param
    )
    if request.param:
        torch.nn.init.normal_(encoder.segment_embeddings)
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
    joined = JoinedPairs.of([(states, np.array([1, 1])), (states, np.array([1, 0]))], torch.zeros(2, 1))
    assert [len(segment.rows) for segment in joined.segments] == [3, 5]
    assert joined.runs == [(1, 5), (1, 6)]
    assert joined.order.tolist() == [1, 0]
    assert joined.states()[:, 0].tolist() == [2, 3, 4, 0, 1, 2, 3, 4, 2, 3, 4]
