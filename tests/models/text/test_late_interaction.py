"""Late interaction: matching against a plain loop, its words, resuming, and what is said of bad input."""

import numpy as np
import pytest
import torch

from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, Entity, KnowledgeGraph, Queries, Relation
from cascader.models import Frequency, model_class
from cascader.models.text import LateInteraction
from cascader.models.text.base_model import load_base_model
from cascader.models.text.late_tokens import (
    DESCRIPTION,
    NAME,
    PHRASE,
    WHOLE,
    LateTexts,
    TokenRows,
    best_matches,
    by_length,
    learned_matches,
)
from cascader.models.text.words import MatchedWords, words_of
from cascader.scoring import reasons_of
from tests.contracts import ModelContract
from tests.models.embeddings.test_training import line

KINDS = {
    "beside the prior": {},
    "without it": {"prior_weight": 0.0},
    "with few of everything": {"negatives": 2, "question_tokens": 3, "dropout": 0.3},
}


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def kind(request, tiny_model):
    return {"base": tiny_model, "layer": 1, "dim": 8, "epochs": 2, "valid_every": 1, **KINDS[request.param]}


@pytest.fixture(scope="module")
def small(tiny_model):
    return {"base": tiny_model, "layer": 2, "dim": 8, "epochs": 1}


class TestAsAModel(ModelContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy, kind):
        return LateInteraction(**kind).fit(toy)


def test_it_is_a_registered_kind_that_scores_all_entities():
    assert model_class("late") is LateInteraction
    assert not LateInteraction.reads_pairs


@pytest.mark.slow
def test_it_learns_train_by_heart(tiny_model):
    from cascader.evaluation import evaluate

    kg = line()
    none = kg.valid[:0]
    named = [Entity(entity.id, f"node {entity.id}") for entity in kg.entities]
    learnt = KnowledgeGraph("learnt", named, kg.relations, kg.train, none, none)
    asked = KnowledgeGraph("asked", named, kg.relations, none, none, kg.train)
    model = LateInteraction(base=tiny_model, layer=1, epochs=60, batch_size=16, dropout=0.0, prior_weight=0.0)
    assert evaluate(model.fit(learnt), asked).mrr > 2 * evaluate(Frequency().fit(kg), asked).mrr
    assert model.history_.losses[-1] < model.history_.losses[0]


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit(toy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 0)
    long = {**kind, "patience": 99}
    whole = LateInteraction(**{**long, "epochs": 6}).fit(toy)
    LateInteraction(**{**long, "epochs": 3}).fit(toy, folder=tmp_path)
    resumed = LateInteraction(**{**long, "epochs": 6}).fit(toy, folder=tmp_path)
    assert whole.history_.losses == resumed.history_.losses
    assert torch.equal(whole.entities_.rows, resumed.entities_.rows)


def test_a_dry_run_leaves_a_model_that_scores_and_the_real_training_untouched(toy, kind):
    before = LateInteraction(**kind).fit(toy).entities_.rows
    model = LateInteraction(**kind)
    cost = model.dry_run(toy, earlier=Frequency().fit(toy))
    assert min(cost.preparing, cost.epoch, cost.look) > 0
    assert (cost.epochs, cost.parameters) == (2, model.parameter_count)
    assert np.isfinite(model.score_all(toy.query("aspirin", "treats"))).all()
    assert torch.equal(LateInteraction(**kind).fit(toy).entities_.rows, before)


def test_trained_for_a_sum_it_keeps_what_was_best_in_the_sum(toy, tiny_model):
    from cascader.cascade.alphas import best_sum

    earlier = Frequency().fit(toy)
    settings = {"base": tiny_model, "layer": 2, "epochs": 4, "valid_every": 1, "hard_negatives": 2, "negatives": 2}
    model = LateInteraction(**settings).fit(toy, earlier=earlier)
    best = best_sum(earlier, model, toy, Queries.from_triples(toy.valid)).mrr
    assert best == pytest.approx(max(model.history_.valid.values()))


def test_a_new_entity_with_the_text_of_a_known_one_gets_its_answers(toy, small):
    model = LateInteraction(**small).fit(toy)
    new = model.for_new_entities([Entity("new", "aspirin")], toy, None)
    question = toy.query("aspirin", "treats")
    asked = Queries(np.array([0]), question.relations, question.predicts_tail)
    np.testing.assert_allclose(new.score_all(asked), model.score_all(question), atol=0.02)  # read in another batch
    assert new.explain(asked, 1) is not None


# Matching.


def some_tokens(lengths, dim=4):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = torch.randn(int(offsets[-1]), dim)
    return TokenRows(offsets, rows, torch.zeros(len(rows), dtype=torch.uint8))


def one_by_one(questions, tokens):
    """Add up the best matches with plain loops."""
    return torch.stack(
        [
            torch.stack(
                [
                    sum(max(token @ other for other in tokens.take(np.array([text])).rows) for token in question)
                    for text in range(len(tokens))
                ]
            )
            for question in questions
        ]
    )


def test_a_score_is_the_sum_of_the_best_matches_of_the_questions_tokens():
    torch.manual_seed(0)
    tokens, questions = some_tokens([3, 1, 5, 2]), torch.randn(2, 3, 4)
    expected = one_by_one(questions, tokens)
    for group in by_length(tokens, np.arange(4)):
        found = best_matches(questions, tokens.rows[torch.from_numpy(group.rows)].T, len(group.places))
        torch.testing.assert_close(found, expected[:, torch.from_numpy(group.places)])


def test_learning_uses_the_same_sums_and_the_gradient_of_plain_loops():
    torch.manual_seed(0)
    tokens = some_tokens([3, 1, 5, 2])
    (group,) = by_length(tokens, np.arange(4))
    grads = []
    for score in ("plainly", "learned"):
        questions, rows = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)), tokens.rows.clone()
        questions.requires_grad_(), rows.requires_grad_()
        if score == "plainly":
            sums = one_by_one(questions, tokens.with_rows(rows))[:, torch.from_numpy(group.places)]
        else:
            sums = learned_matches(questions, rows.index_select(0, torch.from_numpy(group.rows)), 4)
        (sums * torch.arange(8.0).view(2, 4)).sum().backward()
        grads.append((sums.detach(), questions.grad, rows.grad))
    for plain, learned in zip(*grads, strict=True):
        torch.testing.assert_close(learned, plain, rtol=1e-4, atol=1e-4)


def test_texts_of_a_group_are_padded_with_their_first_token():
    tokens = some_tokens([1, 2])
    (group,) = by_length(tokens, np.arange(2))
    assert (group.places.tolist(), group.rows.tolist()) == ([1, 0], [1, 0, 2, 0])


def test_a_token_belongs_to_the_whole_the_name_the_description_or_the_phrase(tiny_model):
    kg = KnowledgeGraph(
        "two", (Entity("a", "ab", "c d"), Entity("b", "it")), (Relation("r", "is"),), [[0, 0, 1]], [], []
    )
    texts = LateTexts.of(kg, load_base_model(tiny_model), 16)  # the tiny model's tokens are letters
    first = [WHOLE, NAME, NAME, DESCRIPTION, DESCRIPTION, DESCRIPTION]  # "ab", then ":", "c", "d"
    assert texts.entity_parts.tolist() == [*first, WHOLE, NAME, NAME]
    assert texts.relation_parts[:3].tolist() == [WHOLE, PHRASE, PHRASE]


def test_only_the_tokens_with_most_weight_are_matched_and_their_weights_sum_to_one(toy, small):
    model = LateInteraction(**small, question_tokens=4).fit(toy)
    asked = model._asked(Queries.from_triples(toy.train))
    assert asked.vectors.shape[1] == 4
    torch.testing.assert_close(asked.weights.sum(dim=1), torch.ones(len(asked.weights)))


# Words.


def test_word_pieces_become_whole_words_again_and_marks_none(tiny_model):
    base = load_base_model(tiny_model)
    assert words_of("Abc, def", base) == ["", *["Abc"] * 3, "", *["def"] * 3]
    assert words_of("abcd", base, limit=3) == ["", *["abc"] * 3]


def test_words_that_say_nothing_are_not_named_but_those_of_another_script_are(tiny_model):
    assert words_of("the cab", load_base_model(tiny_model)) == ["", "", "", "", "cab", "cab", "cab"]
    assert words_of("熱", load_base_model(tiny_model)) == ["", "熱"]


def test_words_that_differ_in_case_only_are_the_same():
    products = torch.tensor([[5.0], [4.0]])
    (reason,) = MatchedWords(["Bay", "bay"], ["bay"], products, torch.zeros(2)).reasons()
    assert reason.text == "matched words: Bay"


def test_matched_words_are_those_that_set_a_candidate_apart():
    products = torch.tensor([[9.0, 1.0, 0.0], [1.0, 2.0, 8.0], [5.0, 1.0, 1.0], [9.0, 0.0, 0.0]])
    usual = torch.tensor([1.0, 2.0, 5.0, 1.0])  # the third token matches any text as well
    words = MatchedWords(["Spain", "capital", "of", ""], ["Spain", "", "city"], products, usual)
    (reason,) = words.reasons()
    assert reason.text == "matched words: Spain, capital ~ city"
    assert reason.strength == pytest.approx(8 + 6)


@pytest.mark.parametrize("gain", [-1.0, 0.5])
def test_without_a_clear_match_there_is_no_reason(gain):
    assert MatchedWords(["a"], ["b"], torch.tensor([[2 + gain]]), torch.tensor([2.0])).reasons() == []


def test_the_pieces_of_a_word_count_together():
    products = torch.tensor([[5.0, 4.0], [4.0, 5.0], [7.0, 0.0]])
    (reason,) = MatchedWords(["Spanish", "Spanish", "city"], ["Spain", "Spain"], products, torch.zeros(3)).reasons()
    assert reason.text == "matched words: Spanish ~ Spain, city ~ Spain"


def test_a_reason_is_one_line_whatever_the_names_are(small, monkeypatch):
    monkeypatch.setattr("cascader.models.text.words._CLEAR", 0.0)  # nothing was learned here
    hostile = Entity("a", "bad\x1b[31m\nname\u202e", "<b>bold</b>"), Entity("b", "bad name", "bold" * 100)
    kg = KnowledgeGraph("hostile", hostile, (Relation("r", "is\na"),), [[0, 0, 1]], [], [])
    model = LateInteraction(**small).fit(kg)
    found = [reason for answer in (0, 1) for reason in reasons_of(model, kg.query("a", "r"), answer)]
    assert any("matched words: " in reason.text for reason in found)
    for reason in found:
        assert reason.text.isprintable()
        assert len(reason.text) < 1000


# Bad input.


class TestBadInput:
    def test_a_layer_that_the_model_does_not_have(self, toy, tiny_model):
        with pytest.raises(SettingsError, match=r"split at layer 4, but .* has 2 layers. Choose from 0 to 2"):
            LateInteraction(base=tiny_model).fit(toy)

    def test_a_graph_without_texts(self, small):
        kg = KnowledgeGraph.from_triples([("Q1", "P1", "Q2"), ("Q2", "P1", "Q3")])
        with pytest.raises(DataError, match="has no texts: 0 of 3 entities .* Give an entity table"):
            LateInteraction(**small).fit(kg)

    def test_texts_without_words_of_ten_thousand_words_and_in_a_script_that_no_token_covers(self, small):
        texts = (
            ("a", "fever", ""),
            ("b", "...", ""),
            ("c", " ", ""),
            ("d", "熱", "発熱"),
            ("e", "long", "word " * 10_000),
        )
        entities = tuple(Entity(*text) for text in texts)
        kg = KnowledgeGraph("odd", entities, (Relation("r", "?!"),), [[0, 0, 1], [2, 0, 3], [4, 0, 0]], [], [])
        model = LateInteraction(**small).fit(kg)
        assert np.isfinite(model.score_all(Queries.from_triples(kg.train))).all()
        for answer in range(len(entities)):
            assert isinstance(model.explain(kg.query("d", "r"), answer), list)

    def test_a_text_longer_than_the_base_can_read(self, toy, small):
        with pytest.raises(SettingsError, match=r"max_tokens is 1000, but .* reads texts of 126 tokens at most"):
            LateInteraction(**small, max_tokens=1000).fit(toy)

    def test_asked_before_it_is_fitted(self, toy):
        queries = Queries.from_triples(toy.train)
        nothing = Candidates.from_lists([[] for _ in range(len(queries))])
        for ask in (
            lambda model: model.score_all(queries),
            lambda model: model.score(queries, nothing),
            lambda model: model.explain(queries[:1], 0),
        ):
            with pytest.raises(NotFittedError, match=r"late has not been fitted. Call fit\(kg\)"):
                ask(LateInteraction())

    def test_one_of_another_graph(self, toy, small, tmp_path):
        LateInteraction(**small).fit(toy).save(tmp_path)
        with pytest.raises(DataError, match=r"texts for 8 entities .* needs .* It was trained on another graph"):
            LateInteraction.load(tmp_path, line())
