"""The pooled encoder: a model like any other, which can first learn which texts match."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from cascader.errors import SettingsError
from cascader.graph import Candidates, KnowledgeGraph, Queries
from cascader.models import Frequency
from cascader.models.text import CrossEncoder, PooledEncoder
from cascader.models.text.base_model import load_base_model
from cascader.models.text.pairs import Pairs
from cascader.models.text.pooled_encoder import MatchingHead, MatchScorer, MatchTraining, PoolingEncoder
from cascader.models.text.split_encoder import encode_cls
from cascader.models.text.text_model import GraphTexts, Tokens
from tests.contracts import ModelContract

KINDS = {"pairs alone": {}, "texts matched first": {"pretraining_epochs": 2}}


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def kind(request, tiny_model):
    small = {"rounds": 2, "queries_per_round": 8, "batch_size": 4, "valid_every": 1, "valid_top_k": 3}
    return {"base": tiny_model, "hard_negative_pool": 4, **small, **KINDS[request.param]}


class TestAsAModel(ModelContract):
    # What a text is padded with depends on its neighbors.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-4, "atol": 1e-5}

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, kind):
        return PooledEncoder(**kind).fit(toy, earlier=Frequency().fit(toy))


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(toy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    earlier, long = Frequency().fit(toy), {**kind, "patience": 99}
    whole = PooledEncoder(**{**long, "rounds": 6}).fit(toy, earlier=earlier)
    PooledEncoder(**{**long, "rounds": 3}).fit(toy, folder=tmp_path, earlier=earlier)
    resumed = PooledEncoder(**{**long, "rounds": 6}).fit(toy, folder=tmp_path, earlier=earlier)
    assert whole.history_.losses == resumed.history_.losses
    ours, theirs = (model._head.state_dict() | model._encoder.upper.state_dict() for model in (whole, resumed))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_dry_run_leaves_a_model_that_scores(toy, kind):
    model = PooledEncoder(**kind)
    cost = model.dry_run(toy, earlier=Frequency().fit(toy))
    assert min(cost.preparing, cost.epoch, cost.look) > 0
    assert (cost.epochs, cost.parameters) == (2, model.parameter_count)
    assert np.isfinite(model.score_all(toy.query("aspirin", "treats"))).all()


def test_the_first_pair_that_shares_a_text_pays_for_it(toy, tiny_model, three_layers):
    pooled = PooledEncoder(base=tiny_model, rounds=1).fit(toy)
    cross = CrossEncoder(base=three_layers, split_layer=1, rounds=1).fit(toy)
    query = Queries.from_triples(toy.train)[:1]
    asked, candidates = query[np.array([0, 0])], Candidates.from_lists([[1, 2], [2, 1]])
    lengths = pooled._encoder.texts.entities.counts
    anchor = lengths[query.anchors[0]]
    assert pooled.token_counts(asked, candidates).tolist() == [anchor + lengths[1], lengths[2], 0, 0]
    assert len(set(cross.token_counts(asked, candidates)[[0, 3]])) == 1  # each pair is read anew


def test_a_base_of_one_layer_is_refused(toy, tiny_model, monkeypatch):
    whole = load_base_model(tiny_model)
    single = replace(
        whole,
        encoder=type(whole.encoder)(
            whole.encoder.config.__class__(**{**whole.encoder.config.to_dict(), "num_hidden_layers": 1})
        ),
    )
    monkeypatch.setattr("cascader.models.text.pair_model.load_base_model", lambda name: single)
    with pytest.raises(SettingsError, match="has 1 layer, but a pooled encoder needs one to read texts and one more"):
        PooledEncoder(base=tiny_model).fit(toy)
    with pytest.raises(SettingsError, match="has 1 layer, but a cross encoder needs at least two"):
        CrossEncoder(base=tiny_model, split_layer=0).fit(toy)


@pytest.fixture
def likes():
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefgh" for b in "uvw"]
    return KnowledgeGraph.from_triples(rows, name="likes")


@pytest.fixture
def encoder(likes, tiny_model):
    base = load_base_model(tiny_model)
    return PoolingEncoder(base, GraphTexts.of(likes, base, max_tokens=16))


PAIRS = Pairs(np.array([0, 0, 1, 1, 0]), np.array([0, 0, 2, 3, 1]), np.array([1, 2, 0, 0, 1]))


@pytest.fixture
def pooling(tiny_model):
    base = load_base_model(tiny_model)
    entities, relations = ["a b c", "d", "e f g h", ""], ["r s", "reverse of r s"]
    encoder = PoolingEncoder(base, GraphTexts(Tokens.of(entities, base, 99), Tokens.of(relations, base, 99)))
    torch.manual_seed(0)
    torch.nn.init.normal_(encoder.segment_embeddings)
    return encoder.eval()


def test_what_is_gathered_text_by_text_is_what_the_layer_sees_in_the_pair(pooling):
    with torch.inference_mode():
        after, *_ = pooling(PAIRS).chunk(4, dim=1)
        torch.testing.assert_close(after, encode_cls(pooling.upper, *pooling.lower(PAIRS)), rtol=1e-4, atol=1e-5)


def test_it_has_the_gradients_of_the_whole_layer(pooling):
    gradients = []
    for read in (pooling(PAIRS)[:, : pooling.width], encode_cls(pooling.upper, *pooling.lower(PAIRS))):
        pooling.zero_grad()
        (read**2).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in pooling.parameters() if parameter.grad is not None])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_the_context_of_a_text_alone_is_its_context_in_a_pair(encoder):
    pairs = Pairs(np.array([0, 0]), np.array([1, 1]), np.array([4, 9]))
    _, first, anchor, candidate = encoder.eval()(pairs).chunk(4, dim=1)
    alone_first, alone = encoder.contexts(0, np.array([1, 4, 9]))
    torch.testing.assert_close(first, alone_first.expand(2, -1))
    torch.testing.assert_close(anchor, alone[:1].expand(2, -1))
    torch.testing.assert_close(candidate, alone[1:])


@pytest.mark.parametrize("cached_bytes", [512 << 20, 0], ids=["against all entities", "against some"])
def test_matching_learns_which_texts_can_be_answers(likes, encoder, monkeypatch, cached_bytes):
    monkeypatch.setattr("cascader.models.text.pooled_encoder._CACHED_BYTES", cached_bytes)
    monkeypatch.setattr("cascader.models.text.pooled_encoder._COMPARED", 6)
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
