"""What the language models read."""

import numpy as np
import pytest

from cascader.errors import DataError, SettingsError
from cascader.graph import Entity, KnowledgeGraph
from cascader.models.text.base_model import load_base_model
from cascader.models.text.split_encoder import token_batches
from cascader.models.text.text_model import GraphTexts, Tokens, as_read, check_texts, phrase_of, text_of


@pytest.fixture(scope="module")
def base(tiny_model):
    return load_base_model(tiny_model)


def test_an_entity_is_its_name_and_description():
    assert text_of(Entity("e", "aspirin", " a drug ")) == "aspirin: a drug"
    assert text_of(Entity("e", "aspirin", "")) == "aspirin"


def test_a_question_asked_backwards_reads_differently():
    assert phrase_of("treats", True) != phrase_of("treats", False)


def test_tokens_are_those_of_the_tokenizer_cut_at_the_limit(base):
    tokens = Tokens.of(["a b c d", "", "e"], base, 3)
    assert [base.tokenizer.convert_ids_to_tokens(tokens[i].tolist()) for i in range(3)] == [["a", "b", "c"], [], ["e"]]
    taken = tokens.take(np.array([2, 0]))
    assert [taken[0].tolist(), taken[1].tolist()] == [tokens[2].tolist(), tokens[0].tolist()]


@pytest.mark.parametrize(("limit", "read"), [(2, "a, "), (3, "a, b"), (5, "a, b cd"), (9, "a, b cd")])
def test_a_text_is_known_as_far_as_it_is_read(base, limit, read):
    assert as_read("a, b cd", base, limit) == read.rstrip()


def test_keys_depend_on_the_tokens_and_on_nothing_else(base):
    first, again = Tokens.of(["a b", "c"], base, 9).keys("x"), Tokens.of(["c", "a b"], base, 9).keys("x")
    assert first == again[::-1]
    assert first != Tokens.of(["a b", "c"], base, 9).keys("y")


def test_a_graph_has_every_relation_twice_and_never_cuts_it_short(toy, base):
    texts = GraphTexts.of(toy, base, 2)
    assert len(texts.entities) == len(toy.entities)
    assert len(texts.relations) == 2 * len(toy.relations)
    assert texts.entities.counts.max() <= 2
    phrases = [phrase_of(relation.name, False) for relation in toy.relations]
    whole = [len(base.tokenizer(phrase, add_special_tokens=False)["input_ids"]) for phrase in phrases]
    assert texts.relations.counts[len(phrases) :].tolist() == whole


def test_more_tokens_than_the_model_reads_are_refused(toy, base):
    with pytest.raises(SettingsError, match="max_tokens is 127, but .* reads texts of 126 tokens at most"):
        GraphTexts.of(toy, base, 127)


@pytest.mark.parametrize(
    "names", [["Q1", "Q22", "Q333"], ["/m/027rn", "/m/06cx9", "/m/0abcd"], ["C0004057", "C0018681", "123"]]
)
def test_ids_of_a_catalog_are_not_texts(names):
    rows = [(names[0], "r", names[1]), (names[1], "r", names[2])]
    with pytest.raises(DataError, match="0 of 3 entities have a name in words"):
        check_texts(KnowledgeGraph.from_triples(rows))


def test_names_alone_are_texts():
    check_texts(KnowledgeGraph.from_triples([("aspirin", "treats", "headache")]))


def test_batches_hold_every_text_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(1, 50, size=200)
    batches = list(token_batches(lengths, budget=128))
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(len(batch) * lengths[batch].max() <= 128 for batch in batches)


def test_an_id_that_says_nothing_is_not_read_beside_a_description():
    assert text_of(Entity("Q42", "Q42", "human, writer")) == "human, writer"
    assert text_of(Entity("Q42", "Q42")) == "Q42"
    assert text_of(Entity("Q42", "Douglas Adams", "a writer")) == "Douglas Adams: a writer"
