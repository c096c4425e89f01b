"""The cross encoder: both objectives, split anywhere, resuming, keeping, and only what it is asked for is read."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pytest
import torch

from cascader.cascade import Cascade, TopK
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, Entity, KnowledgeGraph, Queries, Relation
from cascader.models import Frequency
from cascader.models.checkpoints import CHECKPOINT, Checkpoint
from cascader.models.history import Int8Check, TrainingHistory
from cascader.models.registry import load_model
from cascader.models.text import CrossEncoder, PooledEncoder, pair_training
from cascader.models.text.base_model import load_base_model
from cascader.models.text.pairs import PairHead
from cascader.models.text.precision import Int8Layers, UpperLayers, export_int8
from tests.contracts import ModelContract
from tests.models.embeddings.test_training import line

KINDS = {
    "listwise, split in the middle": {"split_layer": 1},
    "listwise, a whole cross encoder": {"split_layer": 0},
    "kg-bert": {"objective": "kg-bert", "split_layer": 0, "negatives": 2},
}


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def kind(request, three_layers):
    small = {
        "rounds": 2,
        "queries_per_round": 8,
        "batch_size": 4,
        "valid_every": 1,
        "valid_top_k": 3,
        "hard_negative_pool": 4,
    }
    return {"base": three_layers, **small, **KINDS[request.param]}


class TestAsAModel(ModelContract):
    # How a pair is padded depends on its neighbors.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-4, "atol": 1e-5}

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, kind):
        return CrossEncoder(**kind).fit(toy, earlier=Frequency().fit(toy))


class Counted:
    """A scorer that counts the distinct pairs it is asked about."""

    def __init__(self, scorer):
        self.scorer, self.pair_count = scorer, 0

    def score_all(self, queries):
        raise AssertionError("only candidates should be read")

    def score(self, queries, candidates):
        rows = queries.keys(100, 100)[candidates.rows]
        self.pair_count += len({*zip(rows.tolist(), candidates.ids.tolist(), strict=True)})
        return self.scorer.score(queries, candidates)


@pytest.mark.parametrize("settings", [{"split_layer": 1}, {"split_layer": 0}, {"objective": "kg-bert"}])
def test_it_learns_which_texts_can_be_answers(three_layers, settings):
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefgh" for b in "uvw"]
    kg = KnowledgeGraph.from_triples(rows, name="likes")
    sizes = {"rounds": 36, "queries_per_round": 64, "learning_rate": 2e-3, **{"split_layer": 0, **settings}}
    model = CrossEncoder(base=three_layers, **sizes).fit(kg)
    assert model.history_.losses[-1] < 0.6 * model.history_.losses[0]
    scores = model.score_all(kg.query("abc a", "likes"))[0]
    is_answer = np.array([entity.id.startswith("xyz") for entity in kg.entities])
    assert scores[is_answer].min() > scores[~is_answer].max()


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(toy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    earlier = Frequency().fit(toy)
    long = {**kind, "patience": 99}
    whole = CrossEncoder(**{**long, "rounds": 6}).fit(toy, earlier=earlier)
    CrossEncoder(**{**long, "rounds": 3}).fit(toy, folder=tmp_path, earlier=earlier)
    resumed = CrossEncoder(**{**long, "rounds": 6}).fit(toy, folder=tmp_path, earlier=earlier)
    assert whole.history_.losses == resumed.history_.losses
    ours, theirs = (model._head.state_dict() | model._encoder.upper.state_dict() for model in (whole, resumed))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_the_earlier_tiers_are_asked_only_about_the_questions_of_the_rounds_that_are_trained(three_layers, monkeypatch):
    kg, asked = line(40), []
    entities = tuple(entity._replace(name="a point", description="on a line") for entity in kg.entities)
    kg = dataclasses.replace(kg, entities=entities, valid=kg.valid[:0])

    class Asked(Frequency):
        def score_all(self, queries):
            asked.extend(queries.keys(len(kg.entities), len(kg.relations)).tolist())
            return super().score_all(queries)

    monkeypatch.setattr(pair_training, "_QUESTIONS_AT_ONCE", 4)
    settings = {"base": three_layers, "split_layer": 1, "queries_per_round": 8, "batch_size": 4, "valid_every": 9}
    CrossEncoder(rounds=1, **settings).fit(kg, earlier=Asked().fit(kg))
    assert len(asked) == len(set(asked)) == 8 < len(Queries.from_triples(kg.train).unique()[0])


def test_a_dry_run_leaves_a_model_that_scores(toy, kind):
    model = CrossEncoder(**kind)
    cost = model.dry_run(toy, earlier=Frequency().fit(toy))
    assert min(cost.preparing, cost.epoch, cost.look) > 0
    assert (cost.epochs, cost.parameters) == (2, model.parameter_count)
    assert np.isfinite(model.score_all(toy.query("aspirin", "treats"))).all()


def test_in_a_cascade_only_what_survives_is_read_and_identical_pairs_once(toy, three_layers):
    model = CrossEncoder(base=three_layers, rounds=1, queries_per_round=8, split_layer=1).fit(toy)
    first, known = Frequency().fit(toy), toy.known(("train",))
    queries = Queries.from_triples(toy.triples()).with_known(known)
    counted = Counted(model)
    cascade = Cascade(first).then(counted, alpha=0.0, keep=TopK(3))
    scores = cascade.score_all(queries)
    questions = queries.unique()[0]
    assert 0 < counted.pair_count <= 3 * len(questions)
    masked = first.score_all(queries)
    answers = known.of(queries)
    masked[answers.rows, answers.ids] = -np.inf
    kept = TopK(3).keep(queries, masked)
    assert not any(np.isin(kept[i], answers[i]).any() for i in range(len(queries)))
    for row in range(len(queries)):
        pruned = np.setdiff1d(np.arange(len(toy.entities)), np.concatenate([kept[row], answers[row]]))
        assert scores[row][kept[row]].min() >= scores[row][pruned].max()
        order = kept[row][np.argsort(-scores[row][kept[row]], kind="stable")]
        alone = model.score(queries[row : row + 1], Candidates.from_lists([order.tolist()]))
        assert (np.diff(alone) <= 1e-5).all()


def test_a_whole_cross_encoder_scores_as_transformers_does(toy, tiny_model, tmp_path):
    """Split at 0, the input is what sentence-transformers gives a cross encoder, and the head is BERT's own."""
    from transformers import AutoModel, AutoTokenizer

    from cascader.models.text.text_model import phrase_of, text_of

    model = CrossEncoder(base=tiny_model, rounds=1, queries_per_round=8, split_layer=0).fit(toy)
    model.save(tmp_path)
    query = Queries.from_triples(toy.train)[:1]
    ours = model.score(query, Candidates.from_lists([[2]]))
    tokenizer, encoder = (kind.from_pretrained(tmp_path / "encoder") for kind in (AutoTokenizer, AutoModel))
    question = f"{phrase_of(toy.relations[query.relations[0]].name, True)} | {text_of(toy.entities[query.anchors[0]])}"
    first, second = (
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (question, text_of(toy.entities[2]))
    )
    ids = [tokenizer.cls_token_id, *first, tokenizer.sep_token_id, *second, tokenizer.sep_token_id]
    types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    with torch.inference_mode():
        state = encoder(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).last_hidden_state[:, 0]
        theirs = model._head(state)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


def _but_head(training):
    return {name: weight for name, weight in training.weights().items() if not name.startswith("head.")}


def onnx_layers(states="states", width=8, scores="scores", scored="Sum"):
    """The bytes of an ONNX file with inputs as the layers have them, and one step to the scores."""
    from onnx import TensorProto, helper

    if scored == "Sum":
        axes = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
        step = [helper.make_node("ReduceSum", [states, "axes"], [scores], keepdims=0)]
    else:
        axes = helper.make_tensor("axes", TensorProto.INT64, [0], [])
        step = [helper.make_node(scored, [states], [scores])]
    inputs = [
        helper.make_tensor_value_info(states, TensorProto.FLOAT, ["pairs", "tokens", width]),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, ["pairs", "tokens"]),
    ]
    output = helper.make_tensor_value_info(scores, TensorProto.FLOAT, None)
    graph = helper.make_graph(step, "layers", inputs, [output], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


@pytest.mark.slow  # exports to ONNX
class TestPrecision:
    SMALL: ClassVar[dict[str, object]] = {"rounds": 1, "queries_per_round": 8, "split_layer": 0, "valid_top_k": 4}

    @pytest.fixture(scope="class")
    @classmethod
    def exports(cls):
        """What was exported already, by the weights: most of these tests train the same model."""
        return {}

    @pytest.fixture(autouse=True)
    def _exported_once(self, exports, monkeypatch):
        def export(layers, width):
            weights = b"".join(weight.numpy().tobytes() for weight in layers.state_dict().values())
            if weights not in exports:
                exports[weights] = export_int8(layers, width)
            return exports[weights]

        monkeypatch.setattr("cascader.models.text.cross_encoder.export_int8", export)

    @pytest.mark.parametrize("is_used", [True, False])
    def test_eight_bits_are_used_only_where_valid_sees_no_difference(
        self, toy, tiny_model, tmp_path, monkeypatch, is_used
    ):
        allowed = 1.0 if is_used else 0.0  # a loss of MRR that any model stays below, and one that none does
        monkeypatch.setattr("cascader.models.text.cross_encoder._INT8_LOSS", allowed)
        model = CrossEncoder(base=tiny_model, precision="int8", **self.SMALL).fit(toy, earlier=Frequency().fit(toy))
        assert model.history_.int8.is_used is is_used
        assert isinstance(model._layers, Int8Layers) is is_used
        queries = Queries.from_triples(toy.train)
        model.save(tmp_path)
        assert (tmp_path / "int8.onnx").exists() is is_used
        loaded = CrossEncoder.load(tmp_path, toy)
        assert isinstance(loaded._layers, Int8Layers) is is_used
        np.testing.assert_allclose(loaded.score_all(queries), model.score_all(queries), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("split", [3, 4])
    def test_eight_bits_of_the_default_model_order_inputs_as_all_bits_do(self, split):
        base = load_base_model()
        torch.manual_seed(0)
        layers = UpperLayers(base.layers[split:], PairHead(base.width, relation_count=1)).eval()
        states, mask = torch.randn(64, 40, base.width) / 2, torch.ones(64, 40, dtype=torch.bool)
        mask[::2, 30:] = False
        with torch.inference_mode():
            exact = layers(states, mask)
        rough = Int8Layers(export_int8(layers, base.width), base.width)(states, mask)
        assert np.corrcoef(rough, exact)[0, 1] > 0.95

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"states": "other"}, "have other tensor(float) ['pairs', 'tokens', 8], mask tensor(bool)"),
            ({"width": 9}, "have states tensor(float) ['pairs', 'tokens', 9], mask tensor(bool)"),
            ({"scores": "else"}, "expected states of width 8, a mask, and scores. Copy the run again."),
            ({"scored": "Identity"}, "give torch.float32 (2, 3, 8) for 2 pairs, expected a float32 for each."),
            ({"scored": "Det"}, "cannot score: "),
        ],
    )
    def test_layers_that_do_not_fit_are_refused_with_a_sentence(self, change, said):
        with pytest.raises(DataError) as refused:
            Int8Layers(onnx_layers(**change), width=8)(torch.zeros(2, 3, 8), torch.ones(2, 3, dtype=torch.bool))
        assert said in str(refused.value)

    def test_no_plan_is_kept_for_every_shape_that_a_batch_had(self):
        options = Int8Layers(onnx_layers(), width=8)._session.get_session_options()
        assert not options.enable_mem_pattern

    def test_eight_bits_are_checked_with_the_weights_that_are_kept(self, toy, tiny_model, monkeypatch):
        monkeypatch.setattr("cascader.models.text.cross_encoder._INT8_LOSS", 1.0)
        settings = {**self.SMALL, "rounds": 6, "valid_every": 1, "patience": 99, "learning_rate": 1e-2}
        model = CrossEncoder(base=tiny_model, precision="int8", **settings).fit(toy, earlier=Frequency().fit(toy))
        assert model.history_.int8.float32_mrr == model.history_.best_valid
        kept, training = model._head.state_dict(), model._training(toy, None, lambda: None)
        training.load({f"head.{name}": weight + 1 for name, weight in kept.items()} | _but_head(training), None)
        training.validate()
        assert torch.equal(training.weights()["head.classifier.bias"], model._head.classifier.bias.detach())

    @pytest.mark.parametrize("is_installed", [True, False])
    def test_on_its_own_it_takes_eight_bits_where_they_are_installed(
        self, toy, tiny_model, tmp_path, monkeypatch, is_installed
    ):
        monkeypatch.setattr("cascader.models.text.cross_encoder._INT8_LOSS", 1.0)
        monkeypatch.setattr("cascader.models.text.cross_encoder.has_onnx", lambda: is_installed)
        model = CrossEncoder(base=tiny_model, precision="auto", **self.SMALL).fit(toy, earlier=Frequency().fit(toy))
        assert isinstance(model._layers, Int8Layers) is is_installed
        model.save(tmp_path)
        monkeypatch.setattr("cascader.models.text.cross_encoder.has_onnx", lambda: False)
        assert CrossEncoder.load(tmp_path, toy)._layers is None  # a colleague's machine has no ONNX Runtime

    def test_eight_bits_are_not_used_where_nothing_can_be_checked(self, toy, tiny_model):
        model = CrossEncoder(base=tiny_model, precision="int8", **self.SMALL).fit(toy)
        assert model.history_.int8 == Int8Check(float32_mrr=None, int8_mrr=None, is_used=False)

    def test_bfloat16_is_tried_in_a_child_and_never_kills_us(self, toy, tiny_model, monkeypatch):
        from cascader.models.text import precision

        monkeypatch.setattr(precision, "_BFLOAT16", "import os; os.abort()")  # as on a processor without it
        precision.has_bfloat16.cache_clear()
        assert precision.has_bfloat16() is False
        monkeypatch.setattr(precision, "_BFLOAT16", "pass")
        precision.has_bfloat16.cache_clear()
        assert precision.has_bfloat16() is True
        precision.has_bfloat16.cache_clear()
        monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
        with pytest.raises(SettingsError, match="bfloat16 products do not work on this processor"):
            CrossEncoder(base=tiny_model, precision="bfloat16", **self.SMALL).fit(toy)


class TestBadInput:
    def test_an_unknown_objective(self):
        with pytest.raises(SettingsError, match="objective is 'pointwise', expected one of: listwise, kg-bert"):
            CrossEncoder(objective="pointwise")

    @pytest.mark.parametrize("split", [2, 3, 9])
    def test_a_split_that_leaves_fewer_than_two_layers_to_the_pair(self, toy, three_layers, split):
        sentence = rf"split_layer is {split}, but .* has 3 layers: .*Choose a split_layer from 0 to 1, or a pooled"
        with pytest.raises(SettingsError, match=sentence):
            CrossEncoder(base=three_layers, split_layer=split).fit(toy)

    def test_a_saved_model_from_when_the_pooled_encoder_was_called_cross(self, toy, tiny_model, tmp_path):
        PooledEncoder(base=tiny_model, rounds=1, queries_per_round=4).fit(toy).save(tmp_path)
        saved = json.loads((tmp_path / "model.json").read_text())
        saved["settings"] |= {"split_layer": 5, "precision": "float32"}
        (tmp_path / "model.json").write_text(json.dumps({**saved, "model": "cross"}))
        with pytest.raises(DataError, match="when the pooled encoder was still called a cross encoder, and split at l"):
            load_model(tmp_path, toy)

    def test_a_checkpoint_from_then_is_refused_and_left_as_it_is(self, toy, three_layers, tmp_path):
        old = Checkpoint(tmp_path / CHECKPOINT, {"model": "cross", "split_layer": 5, "pretraining_epochs": 0})
        old.save({"weights/x": torch.ones(2)}, TrainingHistory().as_dict())
        before = (tmp_path / CHECKPOINT).read_bytes()
        with pytest.raises(DataError, match=r"checkpoint.safetensors was written when the pooled .* It is left as it"):
            CrossEncoder(base=three_layers, split_layer=1, rounds=1).fit(toy, folder=tmp_path)
        assert (tmp_path / CHECKPOINT).read_bytes() == before

    def test_asked_before_it_is_fitted(self, toy):
        with pytest.raises(NotFittedError, match=r"has not been fitted. Call fit\(kg\)"):
            CrossEncoder().score(Queries.from_triples(toy.train), Candidates.from_lists([[0]] * 2 * len(toy.train)))

    def test_one_of_another_graph(self, toy, tiny_model, tmp_path):
        CrossEncoder(base=tiny_model, rounds=1, queries_per_round=4, split_layer=0).fit(toy).save(tmp_path)
        with pytest.raises(DataError, match="It was trained on another graph"):
            CrossEncoder.load(tmp_path, line())

    def test_a_text_of_no_words_is_read_as_an_empty_one(self, three_layers):
        model, kg = self.fitted(three_layers, "", "\u2026 \u2014")
        assert np.isfinite(model.score_all(kg.query("a0", "likes"))).all()

    def test_a_text_of_ten_thousand_words_is_read_as_far_as_max_tokens(self, three_layers):
        model, kg = self.fitted(three_layers, " ".join(["long"] * 10_000), "short")
        assert model._encoder.texts.entities.counts.max() == 8
        assert np.isfinite(model.score_all(kg.query("a0", "likes"))).all()

    @staticmethod
    def fitted(base, *descriptions):
        entities = tuple(Entity(f"a{i}", f"thing {i}" if text else "", text) for i, text in enumerate(descriptions * 3))
        triples = np.array([[i, 0, (i + 1) % len(entities)] for i in range(len(entities))], dtype=np.int32)
        kg = KnowledgeGraph("words", entities, (Relation("likes", "likes"),), triples, triples[:0], triples[:0])
        return CrossEncoder(base=base, rounds=1, split_layer=1, max_tokens=8).fit(kg), kg

    def test_texts_in_a_script_that_the_tokenizer_does_not_know(self, three_layers):
        names = ["\u2d30\u2d4e\u2d30\u2d63", "\u2d49\u2d56\u2d30\u2d4e", "\u2d30\u2d63\u2d49\u2d56"]
        kg = KnowledgeGraph.from_triples(
            [(names[0], "likes", names[1]), (names[1], "likes", names[2])], name="tifinagh"
        )
        with pytest.raises(
            DataError, match="does not know the script of 3 of the 3 texts of tifinagh, such as '\u2d30"
        ):
            CrossEncoder(base=three_layers, split_layer=1).fit(kg)

    def test_a_pair_that_is_longer_than_the_whole_model_can_read(self, three_layers):
        kg = KnowledgeGraph.from_triples([(letter * 60, "likes", "xyz") for letter in "abc"], name="long")
        with pytest.raises(
            SettingsError, match="is 0, so .* of up to .* tokens, but .* reads 128 at most. Lower max_tok"
        ):
            CrossEncoder(base=three_layers, split_layer=0, max_tokens=90).fit(kg)
