"""The dual encoder: both objectives, frozen and tuned layers, resuming, keeping, and what is said of bad input."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.evaluation import evaluate
from cascader.graph import Entity, KnowledgeGraph, Queries
from cascader.models import Frequency
from cascader.models.optimization import Draws, hard_negatives
from cascader.models.plausibility import Plausibility
from cascader.models.text import DualEncoder, DualSettings
from cascader.models.text.text_encoder import CachedEncoder
from cascader.models.text.towers import DualTraining, StarTowers, build_towers
from tests.contracts import ModelContract
from tests.models.embeddings.test_training import line

KINDS = {
    "contrastive": {},
    "contrastive, a layer tuned": {"trainable_layers": 1},
    "contrastive, sampled": {"negatives": 2, "margin": 0.02},
    "contrastive, other answers masked": {"other_answers": "masked", "margin": 0.02},
    "star": {"objective": "star", "trainable_layers": 2, "negatives": 4},
    "two members": {"ensemble_size": 2},
}


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def kind(request, tiny_model):
    return {"base": tiny_model, "dim": 8, "hidden": 16, "epochs": 2, "valid_every": 1, **KINDS[request.param]}


class TestAsAModel(ModelContract):
    # StAR reads a question every time, and how it is padded depends on its neighbors.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-4, "atol": 1e-5}

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, kind):
        return DualEncoder(**kind).fit(toy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"trainable_layers": 1, "encoder_learning_rate": 1e-4},
        {"objective": "star", "trainable_layers": 2, "encoder_learning_rate": 1e-3},
    ],
)
def test_it_learns_train_by_heart(tiny_model, settings):
    kg = line()
    none = kg.valid[:0]
    named = [Entity(entity.id, f"node {entity.id}") for entity in kg.entities]
    learnt = KnowledgeGraph("learnt", named, kg.relations, kg.train, none, none)
    asked = KnowledgeGraph("asked", named, kg.relations, none, none, kg.train)
    sizes = {"batch_size": 16, "hidden": 64, "dim": 32, "dropout": 0.0}
    model = DualEncoder(base=tiny_model, epochs=60, **sizes, **settings).fit(learnt)
    assert evaluate(model, asked).mrr > 2 * evaluate(Frequency().fit(kg), asked).mrr
    assert model.history_.losses[-1] < model.history_.losses[0]


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(toy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    long = {**kind, "patience": 99}
    whole = DualEncoder(**{**long, "epochs": 6}).fit(toy)
    DualEncoder(**{**long, "epochs": 3}).fit(toy, folder=tmp_path)
    resumed = DualEncoder(**{**long, "epochs": 6}).fit(toy, folder=tmp_path)
    assert whole.history_.losses == resumed.history_.losses
    assert torch.equal(whole.entities_, resumed.entities_)


def test_the_seconds_before_the_loop_are_kept_and_those_of_a_resumed_training_added(toy, tiny_model, tmp_path):
    settings = {"base": tiny_model, "trainable_layers": 1, "dim": 8}
    first = DualEncoder(epochs=1, **settings).fit(toy, folder=tmp_path).history_.preparing_seconds
    resumed = DualEncoder(epochs=2, **settings).fit(toy, folder=tmp_path)
    assert resumed.history_.preparing_seconds > first > 0
    assert resumed.describe()["training"]["preparing_seconds"] == round(resumed.history_.preparing_seconds, 1)


def test_a_dry_run_leaves_a_model_that_scores_and_the_real_training_untouched(toy, kind):
    before = DualEncoder(**kind).fit(toy).entities_
    model = DualEncoder(**kind)
    cost = model.dry_run(toy, earlier=Frequency().fit(toy))
    assert min(cost.preparing, cost.epoch, cost.look) > 0
    assert (cost.epochs, cost.parameters) == (2, model.parameter_count)
    assert np.isfinite(model.score_all(toy.query("aspirin", "treats"))).all()
    assert torch.equal(DualEncoder(**kind).fit(toy).entities_, before)


def test_a_tuned_encoder_loads_in_transformers(toy, tiny_model, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    model = DualEncoder(base=tiny_model, trainable_layers=1, epochs=1).fit(toy)
    model.save(tmp_path)
    AutoTokenizer.from_pretrained(tmp_path / "encoder")
    weights = AutoModel.from_pretrained(tmp_path / "encoder").state_dict()
    ours = model._base_model().encoder.state_dict()
    before = AutoModel.from_pretrained(tiny_model).state_dict()
    for name, tensor in ours.items():
        assert torch.equal(weights[name], tensor)
        is_tuned = name.startswith("encoder.layer.1.")
        assert torch.equal(before[name], tensor) != is_tuned or tensor.abs().max() == 0


def test_trained_for_a_sum_it_keeps_what_was_best_in_the_sum(toy, tiny_model):
    from cascader.cascade.alphas import best_sum

    earlier = Frequency().fit(toy)
    model = DualEncoder(base=tiny_model, epochs=4, valid_every=1, hard_negatives=2, negatives=2).fit(
        toy, earlier=earlier
    )
    best = best_sum(earlier, model, toy, Queries.from_triples(toy.valid)).mrr
    assert best == pytest.approx(max(model.history_.valid.values()))


def test_hard_negatives_are_the_earlier_tiers_favourites_that_are_not_known(toy):
    known = toy.known(("train",))
    questions = Queries.from_triples(toy.train).unique()[0]
    scorer = Frequency().fit(toy)
    for row, negatives in enumerate(hard_negatives(scorer, questions, known, 2)):
        one = questions[row : row + 1]
        answers = known.of(one)[0]
        scores = np.delete(scorer.score_all(one)[0], answers)
        assert not np.isin(negatives.numpy(), answers).any()
        np.testing.assert_allclose(scorer.score_all(one)[0][negatives.numpy()], np.sort(scores)[::-1][:2])


@pytest.mark.parametrize(("other_answers", "is_negative"), [("masked", False), ("counted", True)])
def test_masked_a_known_answer_of_the_same_question_is_never_a_negative(toy, tiny_model, other_answers, is_negative):
    """Of the two answers of a question only the first counts; does the second's text then matter to the loss?"""
    from dataclasses import replace

    from cascader.models.text.base_model import load_base_model
    from cascader.models.text.text_encoder import TextEncoder
    from cascader.models.text.text_model import GraphTexts
    from cascader.models.text.towers import ContrastiveTowers

    base = load_base_model(tiny_model)
    settings = DualSettings(base=tiny_model, dim=8, hidden=16, dropout=0.0, other_answers=other_answers)
    texts = TextEncoder(base, GraphTexts.of(toy, base, 16), 0)
    towers = ContrastiveTowers(base.width, len(toy.relations), settings)
    training = DualTraining(towers, texts, settings, toy, None, lambda: None)
    answer_counts = np.diff(training._known.of(training._questions).offsets)
    work = training._drawn(np.flatnonzero(answer_counts > 1)[:1], Draws(0, 1, training.device))
    asked = training._asked(work.questions, torch.from_numpy(work.compared))
    asked = replace(asked, weights=torch.tensor([1.0, *[0.0] * (len(asked.weights) - 1)]))
    vectors = texts.entities(torch.arange(len(toy.entities))).clone().requires_grad_()
    towers.loss(CachedEncoder(vectors, texts.relations(torch.arange(4)), lambda: texts), asked).backward()
    others = asked.compared[asked.answers[1:]]
    assert vectors.grad[others].abs().max().item() > 0 if is_negative else not vectors.grad[others].any()


def test_the_star_head_as_one_product_is_the_head_pair_by_pair():
    torch.manual_seed(0)
    towers = StarTowers(5, 1, DualSettings(objective="star"))
    u, v = torch.randn(3, 5), torch.randn(4, 5)
    one = towers._of_questions(u) @ towers._of_entities(v).T
    for i in range(3):
        for j in range(4):
            pair = towers.head(torch.cat([u[i], u[i] * v[j], u[i] - v[j], v[j]]))
            torch.testing.assert_close(one[i, j], pair[0])


@pytest.mark.parametrize("objective", ["contrastive", "star"])
def test_a_score_is_the_mean_of_the_members_scores(objective):
    torch.manual_seed(0)
    encoder = CachedEncoder(torch.randn(6, 8), torch.randn(2, 8), lambda: None)
    encoder.questions = lambda anchors, relations: encoder.entities(anchors) + encoder.relations(relations)
    towers = build_towers(8, 1, DualSettings(objective=objective, ensemble_size=3, dim=4, hidden=5)).eval()
    anchors, relations, everyone = torch.tensor([0, 3]), torch.tensor([0, 1]), torch.arange(6)

    def scores(some):
        return some.question_vectors(encoder, anchors, relations) @ some.entity_vectors(encoder, everyone).T

    each = torch.stack([scores(member) for member in towers.members])
    assert not torch.allclose(each[0], each[1])  # they start from different weights
    torch.testing.assert_close(scores(towers), each.mean(dim=0))


class TestBadInput:
    def test_an_unknown_objective_or_setting(self):
        with pytest.raises(SettingsError, match="objective is 'bert', expected one of: contrastive, star"):
            DualEncoder(objective="bert")
        with pytest.raises(SettingsError, match="there is no setting 'layers'.*The settings are: base, objective"):
            DualEncoder(layers=2)

    def test_more_tuned_layers_than_there_are(self, toy, tiny_model):
        with pytest.raises(SettingsError, match=r"split at layer -1, but .* has 2 layers. Choose from 0 to 2"):
            DualEncoder(base=tiny_model, trainable_layers=3).fit(toy)

    def test_a_graph_without_texts(self, tiny_model):
        kg = KnowledgeGraph.from_triples([("Q1", "P1", "Q2"), ("Q2", "P1", "Q3")])
        with pytest.raises(DataError, match="has no texts: 0 of 3 entities .* Give an entity table"):
            DualEncoder(base=tiny_model).fit(kg)

    def test_asked_before_it_is_fitted(self, toy):
        with pytest.raises(NotFittedError, match=r"has not been fitted. Call fit\(kg\)"):
            DualEncoder().score_all(Queries.from_triples(toy.train))

    def test_one_of_another_graph(self, toy, tiny_model, tmp_path):
        DualEncoder(base=tiny_model, epochs=1).fit(toy).save(tmp_path)
        with pytest.raises(DataError, match="It was trained on another graph"):
            DualEncoder.load(tmp_path, line())


def test_towers_that_learn_beside_the_prior_have_no_loss_left_where_it_knows_the_answer(toy, tiny_model):
    from dataclasses import replace

    from cascader.models.text.base_model import load_base_model
    from cascader.models.text.text_encoder import TextEncoder
    from cascader.models.text.text_model import GraphTexts

    base = load_base_model(tiny_model)
    settings = DualSettings(base=tiny_model, dim=8, hidden=16, dropout=0.0, prior_weight=0.5, other_answers="masked")
    texts = TextEncoder(base, GraphTexts.of(toy, base, 16), 0)
    towers = build_towers(base.width, len(toy.relations), settings)
    training = DualTraining(towers, texts, settings, toy, None, lambda: None)
    places = np.arange(len(training._questions))
    work = training._drawn(places, Draws(0, 1, training.device))
    asked = training._asked(work.questions, torch.from_numpy(work.compared))
    expected = 0.5 * Plausibility().fit(toy).score_all(training._questions)
    np.testing.assert_allclose(asked.prior.numpy(), expected[:, asked.compared.numpy()])
    certain = replace(asked, prior=100.0 * asked.is_known)
    unaided = replace(asked, prior=None)
    assert towers.loss(texts, certain).item() < 1e-3 < 0.1 < towers.loss(texts, unaided).item()
