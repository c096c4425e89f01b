"""Training: it learns, it resumes to the bit, and it says what is wrong."""

import math
import random
import time
from itertools import count

import numpy as np
import pytest
import torch

import cascader.models.training as training
from cascader.durations import parse_duration
from cascader.errors import DataError, NotFittedError, SettingsError, TrainingError
from cascader.evaluation import evaluate
from cascader.graph import Entity, KnowledgeGraph, Queries
from cascader.models import Frequency, load_model
from cascader.models.checkpoints import Checkpoint
from cascader.models.embeddings import EMBEDDINGS, ComplEx, TransE
from cascader.models.embeddings.training import EmbeddingTraining
from tests.models.test_training import Killed, until
from tests.processes import Forked


def chosen_delay(most):
    """A random moment to kill a process at; the seed is printed, and pytest shows it if the test fails."""
    seed = random.randrange(2**32)
    print(f"killed after a delay drawn with seed {seed}")  # noqa: T201
    return random.Random(seed).uniform(0, most)


def line(size=20):
    """A graph with a pattern that every formula can hold: neighbors on a line."""
    steps = {"next": 1, "second": 2, "third": 3}
    rows = [(f"n{i}", name, f"n{i + step}") for name, step in steps.items() for i in range(size - step)]
    train = [row for i, row in enumerate(rows) if i % 9]
    return KnowledgeGraph.from_triples(train, valid=rows[::18], test=rows[9::18], name="line")


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("complex", {"loss": "1-vs-all"}),
        ("complex", {"loss": "k-vs-all", "label_smoothing": 0.1}),
        ("complex", {"loss": "1-vs-all", "relation_weight": 0.5, "dropout": 0.1}),
        ("complex", {"loss": "1-vs-sample", "negatives": 5}),
        ("rescal", {"regularizer": "lp", "regularizer_weight": 1e-4}),
        ("rescal", {"regularizer": "dura", "regularizer_weight": 0.01}),
        ("transe", {}),
        ("transe", {"norm": 1}),
        ("rotate", {}),
        ("rotate", {"loss": "1-vs-all"}),
    ],
)
def test_every_model_and_loss_learns_train_by_heart(model, settings):
    kg = line()
    none = kg.valid[:0]
    learnt = KnowledgeGraph("learnt", kg.entities, kg.relations, kg.train, none, none)
    asked = KnowledgeGraph("asked", kg.entities, kg.relations, none, none, kg.train)
    fitted = EMBEDDINGS[model](**{"dim": 16, "epochs": 60, "batch_size": 16, "learning_rate": 0.05, **settings}).fit(
        learnt
    )
    assert evaluate(fitted, asked).mrr > 2 * evaluate(Frequency().fit(kg), asked).mrr
    assert fitted.history_.losses[-1] < fitted.history_.losses[0]


def test_rows_of_one_answer_give_the_loss_of_shared_rows():
    settings = {"dim": 4, "epochs": 1, "batch_size": 1000, "relation_weight": 0.5}
    shared = ComplEx(**settings).fit(line())
    apart = ComplEx(answers_per_row=1, **settings).fit(line())
    torch.testing.assert_close(apart.entities_, shared.entities_)


@pytest.mark.parametrize("kind", ["rescal", "complex"])
def test_dura_keeps_predictions_and_answers_small(kind):
    """For (h, r, t), DURA adds |h R|² + |t|²; the rows of inverse relations add |t Rᵀ|² + |h|² with R of their own."""
    kg = KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "likes", "c"), ("a", "knows", "c")])

    def loss(weight):
        dura = {"regularizer": "dura", "regularizer_weight": weight, "dropout": 0.0}
        model = EMBEDDINGS[kind](dim=4, init_std=1.0, batch_size=6, answers_per_row=1, **dura)
        return model, next(EmbeddingTraining(model, kg).steps(1))[0]

    model, _ = loss(0.0)
    initial = EMBEDDINGS[kind](dim=4, init_std=1.0).initial(torch.Generator().manual_seed(0), 3, 2)
    heads, relations, tails = kg.train.T
    asked = (np.concatenate([heads, tails]), np.concatenate([relations, relations + 2]), np.concatenate([tails, heads]))
    anchors, directed, golds = (torch.from_numpy(ids.astype(int)) for ids in asked)
    predicted = model.transform(initial[0][anchors], model.with_inverses(initial[1])[directed])
    expected = ((predicted**2).sum(dim=1) + (initial[0][golds] ** 2).sum(dim=1)).mean()
    assert loss(0.5)[1] - loss(0.0)[1] == pytest.approx(0.5 * float(expected), rel=1e-5)


def test_rows_of_one_answer_are_more_steps():
    settings = {"dim": 4, "epochs": 1, "batch_size": 5}
    facts = KnowledgeGraph.from_triples([("a", "likes", f"b{i}") for i in range(20)])
    steps = {
        at_most: EmbeddingTraining(ComplEx(answers_per_row=at_most, **settings), facts).step_count
        for at_most in (1, 10, 100)
    }
    assert steps == {1: 8, 10: 5, 100: 5}  # 20 heads' questions, and one of twenty tails


def test_a_sample_of_all_entities_is_all_entities():
    settings = {"dim": 4, "epochs": 3, "batch_size": 16}
    sampled = ComplEx(loss="1-vs-sample", negatives=20, **settings).fit(line())
    whole = ComplEx(loss="1-vs-all", **settings).fit(line())
    torch.testing.assert_close(sampled.entities_, whole.entities_)


def test_the_vectors_kept_are_the_best_on_valid():
    kg = line()
    model = ComplEx(dim=8, epochs=30, valid_every=1, patience=99, batch_size=16).fit(kg)
    figures = model.history_.valid
    assert evaluate(model, kg, "valid").mrr == pytest.approx(max(figures.values()))


def test_it_stops_when_valid_has_not_gained_for_long_enough():
    model = ComplEx(dim=4, epochs=500, valid_every=1, patience=2, batch_size=16).fit(line())
    assert model.history_.epochs < 500


@pytest.mark.parametrize("time_limit", [1e-9, "0.001s"])
def test_a_time_limit_is_seconds_or_a_string_with_units(time_limit):
    history = ComplEx(dim=4, epochs=500, batch_size=4).fit(line(), time_limit=time_limit).history_
    assert (history.epochs, history.cut_at) == (0, parse_duration(time_limit))


def test_a_dry_run_estimates_the_training_and_leaves_a_model_that_scores(toy):
    model = ComplEx(dim=4, epochs=6, valid_every=2)
    cost = model.dry_run(toy)
    assert min(cost.preparing, cost.epoch, cost.look) > 0
    assert (cost.epochs, cost.valid_every, cost.parameters) == (6, 2, model.parameter_count)
    assert np.isfinite(model.score_all(toy.query("aspirin", "treats"))).all()


def test_the_steps_of_an_epoch_are_counted():
    for settings in ({}, {"loss": "negative-sampling"}, {"answers_per_row": 2}):
        training = EmbeddingTraining(ComplEx(dim=4, batch_size=5, **settings), line())
        assert training.step_count == sum(1 for _ in training.steps(1))


def test_the_same_seed_gives_the_same_vectors_and_another_gives_others():
    first, again, other = (ComplEx(dim=4, epochs=2, seed=seed).fit(line()) for seed in (0, 0, 1))
    assert torch.equal(first.entities_, again.entities_)
    assert not torch.equal(first.entities_, other.entities_)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("complex", {"dropout": 0.2}),
        ("complex", {"loss": "1-vs-sample", "negatives": 5}),
        ("transe", {}),
        ("rescal", {}),
    ],
    ids=["complex", "sampled", "transe", "rescal"],
)
def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(model, settings, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    kg, kind = line(), EMBEDDINGS[model]
    options = {"dim": 8, "batch_size": 16, "patience": 99, "valid_every": 2, **settings}
    whole = kind(epochs=8, **options).fit(kg)
    kind(epochs=4, **options).fit(kg, folder=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Checkpoint, "save", until(epochs=6, steps=2))
        kind(epochs=8, **options).fit(kg, folder=tmp_path)
    resumed = kind(epochs=8, **options).fit(kg, folder=tmp_path)
    assert torch.equal(whole.entities_, resumed.entities_)
    assert torch.equal(whole.relations_, resumed.relations_)
    assert whole.history_.losses == resumed.history_.losses


def train_on_and_on(folder):
    training._SECONDS_BETWEEN_CHECKPOINTS = 0
    ComplEx(dim=8, epochs=3000, batch_size=4, patience=9999, valid_every=50).fit(line(60), folder=folder)


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_vectors(tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    with Forked(train_on_and_on, tmp_path) as process:
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chosen_delay(most=0.5))
        process.kill()
        process.wait()
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt") as file:
        import json

        done = json.loads(file.metadata()["cascader"])["progress"]["epochs"]
    options = {"dim": 8, "batch_size": 4, "patience": 9999, "valid_every": 50, "epochs": done + 5}
    resumed = ComplEx(**options).fit(line(60), folder=tmp_path)
    whole = ComplEx(**options).fit(line(60))
    assert resumed.history_.losses == whole.history_.losses
    assert torch.equal(resumed.entities_, whole.entities_)


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"dim": 0}, "dim is 0, expected a whole number from 1 to"),
            ({"dim": 2.5}, "dim is 2.5, expected a whole number"),
            ({"learning_rate": float("nan")}, "learning_rate is nan, expected a number from"),
            ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
            ({"loss": "hinge"}, "loss is 'hinge', expected one of: 1-vs-all, k-vs-all, 1-vs-sample, negative-sampling"),
            ({"epoch": 3}, "there is no setting 'epoch'. Did you mean 'epochs'\\? The settings are: dim, loss"),
        ],
    )
    def test_settings_that_cannot_work(self, settings, message):
        with pytest.raises(SettingsError, match=message):
            ComplEx(**settings)

    def test_a_dimension_that_no_memory_holds(self, toy):
        with pytest.raises(
            SettingsError, match=r"needs about \d+ GB, and this machine has \d+. Lower dim or batch_size"
        ):
            EMBEDDINGS["rescal"](dim=100_000).fit(toy)

    def test_a_learning_rate_that_diverges_keeps_the_last_good_checkpoint(self, tmp_path, monkeypatch):
        monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
        good = EmbeddingTraining._loss
        losses = count(1)

        def loss(self, batch, draws):
            return good(self, batch, draws) * (math.nan if next(losses) > 2 * self.step_count else 1)

        monkeypatch.setattr(EmbeddingTraining, "_loss", loss)
        with pytest.raises(
            TrainingError, match=r"became nan in epoch 3. Lower learning_rate. The last good checkpoint"
        ):
            ComplEx(dim=8, epochs=5).fit(line(), folder=tmp_path)
        monkeypatch.undo()
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]
        resumed, whole = ComplEx(dim=8, epochs=5).fit(line(), folder=tmp_path), ComplEx(dim=8, epochs=5).fit(line())
        assert torch.equal(resumed.entities_, whole.entities_)

    def test_a_loss_that_overflows(self):
        settings = {"dim": 8, "regularizer": "lp", "regularizer_power": 10, "optimizer": "adam", "patience": 999}
        with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in epoch \d+. Lower learning_rate"):
            ComplEx(learning_rate=1e6, epochs=200, **settings).fit(line())

    def test_a_checkpoint_of_another_graph(self, toy, tmp_path):
        ComplEx(dim=4, epochs=1).fit(toy, folder=tmp_path)
        with pytest.raises(DataError, match="was made with data hash '.*', but now it is '.*'. Choose another folder"):
            ComplEx(dim=4, epochs=2).fit(line(), folder=tmp_path)

    def test_a_checkpoint_of_other_settings(self, toy, tmp_path):
        ComplEx(dim=4, epochs=1).fit(toy, folder=tmp_path)
        with pytest.raises(DataError, match="was made with dim 4, but now it is 5"):
            ComplEx(dim=5, epochs=2).fit(toy, folder=tmp_path)

    def test_a_checkpoint_of_another_version_or_a_broken_one(self, toy, tmp_path, monkeypatch):
        monkeypatch.setattr("cascader.models.checkpoints.FORMAT", 99)
        ComplEx(dim=4, epochs=1).fit(toy, folder=tmp_path)
        monkeypatch.undo()
        with pytest.raises(
            DataError, match="is a checkpoint of format 99, expected 2. It was written by another version"
        ):
            ComplEx(dim=4, epochs=2).fit(toy, folder=tmp_path)
        (tmp_path / "checkpoint.safetensors").write_bytes(b"broken")
        with pytest.raises(DataError, match="is damaged: .* Delete it"):
            ComplEx(dim=4, epochs=2).fit(toy, folder=tmp_path)

    def test_a_model_that_has_learnt_nothing(self, toy):
        with pytest.raises(NotFittedError, match="complex has not been fitted. Call fit"):
            ComplEx().score_all(toy.query("aspirin", "treats"))

    def test_a_new_entity_without_neighbors(self, toy):
        with pytest.raises(DataError, match="complex has no vector for 'zinc', which toy does not have.* dual encoder"):
            ComplEx(dim=4, epochs=1).fit(toy).for_new_entities([Entity("z", "zinc")], toy, None)

    def test_a_formula_that_cannot_predict_relations(self, toy):
        with pytest.raises(SettingsError, match="transe cannot predict relations. Set relation_weight to 0"):
            TransE(dim=4, epochs=1, relation_weight=0.1).fit(toy)

    def test_a_graph_with_nothing_to_learn_from(self):
        with pytest.raises(DataError, match="has no train triples to learn from"):
            ComplEx().fit(KnowledgeGraph.from_triples([], test=[("a", "r", "b")]))

    @pytest.mark.parametrize("model", EMBEDDINGS)
    def test_the_smallest_graphs_are_fine(self, model):
        one_relation = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], valid=[("a", "r", "c")])
        one_entity = KnowledgeGraph.from_triples([("a", "r", "a")])
        for kg in (one_relation, one_entity):
            scores = EMBEDDINGS[model](dim=4, epochs=2).fit(kg).score_all(kg.query("a", "r"))
            assert np.isfinite(scores).all()

    def test_vectors_of_another_graph(self, toy, tmp_path):
        ComplEx(dim=4, epochs=1).fit(toy).save(tmp_path)
        with pytest.raises(
            DataError, match="the entities of this complex have shape .* It was trained on another graph"
        ):
            load_model(tmp_path, line())


def test_weights_that_are_mapped_from_their_file_score_the_same(tmp_path, toy):
    model = ComplEx(dim=4, epochs=2).fit(toy)
    model.save(tmp_path)
    loaded, queries = ComplEx.load(tmp_path, toy), Queries.from_triples(toy.test)
    (tmp_path / "model.safetensors").unlink()  # whoever maps a file keeps it
    np.testing.assert_array_equal(loaded.score_all(queries), model.score_all(queries))
