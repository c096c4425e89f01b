"""Plausibility: what train says of who can be an answer, each fact left out of its own evidence."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from scipy.sparse import csr_array

import cascader
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, Entity, KnowledgeGraph, KnownAnswers, Queries, Relation
from cascader.models.plausibility import Plausibility
from cascader.models.plausibility.evidence import values_at
from cascader.models.settings import PRESETS, preset
from cascader.scoring.scorer import Explains
from tests.contracts import ModelContract

ALL_OFF = {"completeness": False, "anchor": False, "signature": False, "linked": False}


class TestPlausibility(ModelContract):
    def make(self, kg):
        return Plausibility().fit(kg)


class TestCompletenessAlone(ModelContract):
    def make(self, kg):
        return Plausibility(**ALL_OFF | {"completeness": True}).fit(kg)


class TestPlausibilityOfSelfLoops(ModelContract):
    @pytest.fixture(scope="class")
    @classmethod
    def toy(cls):
        loops = [(name, "like", name) for name in "abcd"]
        return KnowledgeGraph.from_triples(
            [*loops, ("a", "like", "b"), ("b", "knows", "b")], valid=[("e", "like", "e")]
        )

    def make(self, kg):
        return Plausibility().fit(kg)


@pytest.fixture
def three_capitals():
    return KnowledgeGraph.from_triples([(f"city {i}", "capital of", f"country {i}") for i in range(3)])


@pytest.fixture
def world():
    """Cities, their countries and rivers; Vaduz and Liechtenstein wait for each other."""
    capitals = [(f"city {i}", "capital of", f"country {i}") for i in range(30)]
    located = [(f"city {i}", "in", f"country {i}") for i in range(0, 30, 2)]
    rivers = [(f"river {i}", "flows through", f"country {i % 7}") for i in range(30)]
    waiting = [
        ("Vaduz", "twin of", "city 0"),
        ("Rhine", "flows through", "Liechtenstein"),
        ("city 1", "twin of", "Bern"),
    ]
    return KnowledgeGraph.from_triples([*capitals, *located, *rivers, *waiting])


def score_of(model, kg, answer, *question):
    return float(model.score_all(kg.query(*question))[0, kg.entity_index(answer)])


# Completeness.


def test_the_log_odds_of_a_second_capital_are_those_worked_out_by_hand(three_capitals):
    model = Plausibility(**ALL_OFF | {"completeness": True}).fit(three_capitals)
    # Left out of its own evidence, each of the 3 golds has no fact. Of 6 entities, 3 have none and 3 have one, so
    # random golds would be 1.5 and 1.5. Both sides together: 6 golds against 3, and none against 3; 1 is added to each.
    none, one = log((3 + 1) / (1.5 + 4 / 7)), log((0 + 1) / (1.5 + 4 / 1))
    assert score_of(model, three_capitals, "city 1", "country 0", "capital of", "head") == pytest.approx(one - none)
    assert score_of(model, three_capitals, "country 2", "country 0", "capital of", "head") == 0


def test_a_known_answer_is_judged_without_its_own_fact(three_capitals):
    model = Plausibility(**ALL_OFF | {"completeness": True}).fit(three_capitals)
    assert score_of(model, three_capitals, "city 0", "country 0", "capital of", "head") == 0
    without = three_capitals.query("country 0", "capital of", "head").with_known(None)  # then train is known
    assert model.score_all(without)[0, three_capitals.entity_index("city 0")] == 0


def test_many_facts_speak_for_an_entity_where_answers_have_many():
    kg = KnowledgeGraph.from_triples([(f"person {i}", "born in", f"city {i % 2}") for i in range(40)])
    model = Plausibility(**ALL_OFF | {"completeness": True}).fit(kg)
    assert score_of(model, kg, "city 1", "person 0", "born in") > 1
    assert score_of(model, kg, "person 1", "city 0", "born in", "head") < -1


def test_facts_that_are_added_later_count_without_refitting(world):
    model = Plausibility().fit(world)
    question = world.query("Liechtenstein", "capital of", "head")
    vaduz, city = world.entity_index("Vaduz"), world.entity_index("city 3")
    before = model.score_all(question)[0]
    fact = np.array([[vaduz, world.relation_index("capital of"), world.entity_index("country 1")]], dtype=np.int32)
    known = KnownAnswers(np.concatenate([world.train, fact]), len(world.entities), len(world.relations))
    after = model.score_all(question.with_known(known))[0]
    assert after[vaduz] < before[vaduz] - 1
    assert after[city] == before[city]


# The anchor.


def test_without_self_loops_the_anchor_is_no_answer(three_capitals):
    model = Plausibility(**ALL_OFF | {"anchor": True}).fit(three_capitals)
    # 0.01 loops are believed to be among the 6 queries and one more. The 3 of this side are joined by 0.1 of such.
    rate = 0.1 * (0.01 / 7) / 3.1
    by_hand = log(rate / (1 - rate))
    assert score_of(model, three_capitals, "city 0", "city 0", "capital of") == pytest.approx(by_hand)
    assert score_of(model, three_capitals, "city 1", "city 0", "capital of") == 0


def test_self_loops_in_train_are_learned_for_their_relation():
    loops = [(name, "same as", name) for name in "abcdefgh"]
    kg = KnowledgeGraph.from_triples([*loops, *(("a", "knows", name) for name in "bcdefghi")])
    model = Plausibility().fit(kg)
    assert model.score_all(kg.query("i", "same as"))[0].argmax() == kg.entity_index("i")
    assert score_of(model, kg, "i", "i", "knows") < -1
    (reason,) = [
        reason for reason in model.explain(kg.query("i", "same as"), kg.entity_index("i")) if "asked" in reason.text
    ]
    assert reason.text == "it is the entity asked about, and 100 % of the facts of 'same as' link an entity to itself"
    assert reason.speaks_for
    assert reason.facts[0] == (0, 0, 0)


def test_a_known_self_loop_is_left_out_of_both_sides():
    kg = KnowledgeGraph.from_triples([(name, "same as", name) for name in "abcd"] + [("e", "knows", "f")])
    model = Plausibility(anchor=False, linked=False).fit(kg)
    loops = [score_of(model, kg, name, name, "same as") for name in "ab"]
    bare = KnownAnswers(kg.train[1:], len(kg.entities), len(kg.relations))
    without = model.score_all(kg.query("a", "same as").with_known(bare))[0, 0]
    assert loops == pytest.approx([without, without], abs=1e-5)


# The signature.


def test_what_takes_part_in_other_things_is_no_answer(world):
    model = Plausibility(**ALL_OFF | {"signature": True}).fit(world)
    question = ("Liechtenstein", "capital of", "head")
    assert score_of(model, world, "river 1", *question) < score_of(model, world, "city 2", *question) - 1


# Links.


def test_the_log_odds_of_a_link_are_those_worked_out_by_hand():
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "f")]
    kg = KnowledgeGraph.from_triples([(head, "spouse", tail) for head, tail in pairs])
    model = Plausibility(**ALL_OFF | {"linked": True}).fit(kg)
    # Of the 5 facts, 4 have an anchor to which the relation also leads back, each time from the gold, which by chance
    # would be so for 1 in 6. As much as by chance is believed of 5 further facts.
    found = (4 + 5 / 6) / (4 + 5)
    by_hand = log(found / (1 - found)) - log((1 / 6) / (5 / 6))
    assert score_of(model, kg, "e", "f", "spouse") == pytest.approx(by_hand, abs=1e-6)
    assert score_of(model, kg, "a", "f", "spouse") == 0


def test_the_link_that_is_asked_for_says_nothing(world):
    model = Plausibility(**ALL_OFF | {"linked": True}).fit(world)
    assert score_of(model, world, "Bern", "city 1", "twin of") == 0


# Settings.


@pytest.mark.parametrize("part", ["completeness", "anchor", "linked"])
def test_a_part_that_is_off_says_nothing(world, part):
    model = Plausibility(**{part: False}).fit(world)
    assert not getattr(model, f"{part}_").any()
    assert model.describe()["settings"] == {**dict.fromkeys(ALL_OFF, True), part: False}


def test_with_every_part_off_all_entities_are_equal(world):
    model = Plausibility(**ALL_OFF).fit(world)
    assert model.signature_.nnz == 0
    assert not model.score_all(Queries.from_triples(world.train)).any()


def test_a_setting_that_is_neither_true_nor_false_is_an_error():
    with pytest.raises(SettingsError, match="linked is 'no', expected true or false."):
        Plausibility(linked="no")
    with pytest.raises(SettingsError, match="linked is 0, expected true or false."):
        Plausibility(linked=0)


def test_settings_are_saved(world, tmp_path):
    Plausibility(linked=False).fit(world).save(tmp_path)
    loaded = Plausibility.load(tmp_path, world)
    assert repr(loaded) == "Plausibility(linked=False)"
    assert loaded.explain(world.query("Liechtenstein", "capital of", "head"), 0)


@pytest.mark.parametrize("name", PRESETS)
def test_links_are_off_on_the_dataset_that_was_built_without_them(name):
    assert preset("plausibility", name, "fb15k-237") == {"linked": False}
    assert preset("plausibility", name, "wn18rr") == {}


@pytest.mark.parametrize("name", PRESETS)
def test_a_fit_of_that_dataset_leaves_links_out_under_every_preset(toy, name):
    run = cascader.fit(replace(toy, name="fb15k-237"), tiers=["plausibility"], preset=name)
    assert run.tiers["plausibility"].describe()["settings"]["linked"] is False


# Odd graphs.


def test_a_relation_that_train_does_not_have_is_like_the_others(three_capitals):
    with_new = replace(three_capitals, relations=(*three_capitals.relations, Relation("new", "new")))
    model = Plausibility().fit(with_new)
    fact = np.array([[0, 1, 1]], dtype=np.int32)
    known = KnownAnswers(np.concatenate([with_new.train, fact]), len(with_new.entities), 2)
    scores = model.score_all(with_new.query("country 2", "new", "head").with_known(known))[0]
    assert np.isfinite(scores).all()
    assert scores[0] < scores[2] - 1  # the first has one already
    assert scores.argmin() == with_new.entity_index("country 2")  # the anchor


def test_two_entities_are_enough():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    model = Plausibility().fit(kg)
    assert model.score_all(kg.query("a", "r"))[0].argmax() == kg.entity_index("b")
    assert np.isfinite(model.score_all(kg.query("b", "r", "tail"))).all()


def test_a_graph_without_train_says_nothing_but_that_the_anchor_is_no_answer():
    kg = KnowledgeGraph.from_triples([], valid=[("a", "r", "b")])
    scores = Plausibility().fit(kg).score_all(kg.query("a", "r").with_known(None))[0]
    assert np.isfinite(scores).all()
    assert scores[0] < scores[1]


def test_a_graph_without_relations_is_an_error():
    with pytest.raises(DataError, match="graph has no relations, so nothing can be asked or learned. Add triples."):
        Plausibility().fit(KnowledgeGraph.from_triples([]))


def test_it_answers_about_new_entities_by_what_the_answers_are(world):
    model = Plausibility().fit(world)
    new = model.for_new_entities([Entity("n", "Andorra")], world, None)
    question = Queries(np.array([0]), np.array([world.relation_index("capital of")]), np.array([False]))
    scores = new.score_all(question.with_known(world.known(())))[0]
    assert scores[world.entity_index("Vaduz")] > scores[world.entity_index("city 3")] + 1
    candidates = Candidates.from_lists([[3, 1]])
    np.testing.assert_array_equal(new.score(question, candidates), scores[[3, 1]])


def test_it_is_not_asked_before_it_is_fitted_nor_about_another_graph(world, tmp_path):
    question = world.query("city 0", "in")
    for ask in (Plausibility().score_all, lambda q: Plausibility().explain(q, 0)):
        with pytest.raises(NotFittedError, match=r"plausibility has not been fitted. Call fit\(kg\)"):
            ask(question)
    with pytest.raises(NotFittedError, match="plausibility has not been fitted"):
        Plausibility().save(tmp_path)
    with pytest.raises(NotFittedError, match="plausibility has not been fitted"):
        Plausibility().for_new_entities([Entity("n", "new")], world, None)
    Plausibility().fit(world).save(tmp_path)
    with pytest.raises(
        DataError, match="has log-odds for 4 relations, but graph has 1. It was fitted to another graph"
    ):
        Plausibility.load(tmp_path, KnowledgeGraph.from_triples([("a", "r", "b")]))


# Reasons.


def reasons_of(model, kg, answer, *question):
    return {reason.text: reason for reason in model.explain(kg.query(*question), kg.entity_index(answer))}


def test_what_has_one_already_is_told_with_the_fact(world):
    reasons = reasons_of(Plausibility().fit(world), world, "city 3", "Liechtenstein", "capital of", "head")
    most = "and 100 % of entities with any have at most one"
    reason = reasons[f"city 3 is already the head of 1 'capital of' fact (to country 3), {most}"]
    fact = (world.entity_index("city 3"), world.relation_index("capital of"), world.entity_index("country 3"))
    assert reason.facts == (fact,)
    assert not reason.speaks_for
    assert reason.strength > 1
    reasons = reasons_of(Plausibility().fit(world), world, "country 3", "Vaduz", "capital of")
    assert f"country 3 is already the tail of 1 'capital of' fact (from city 3), {most}" in reasons


def test_what_has_many_is_told_as_speaking_for_it():
    kg = KnowledgeGraph.from_triples([(f"person {i}", "born in", f"city {i % 2}") for i in range(40)])
    model = Plausibility(signature=False).fit(kg)
    (text,) = reasons_of(model, kg, "city 1", "person 0", "born in")
    some = "person 1, person 3, person 5 and 17 more"
    more = "and entities with so many often have further ones"
    assert text == f"city 1 is already the tail of 20 'born in' facts (from {some}), {more}"
    turned = KnowledgeGraph.from_triples([(f"city {i % 2}", "home of", f"person {i}") for i in range(40)])
    (text,) = reasons_of(Plausibility(signature=False).fit(turned), turned, "city 1", "person 0", "home of", "head")
    assert text == f"city 1 is already the head of 20 'home of' facts (to {some}), {more}"


def test_the_anchor_itself_is_told_to_be_no_answer(world):
    reasons = reasons_of(Plausibility().fit(world), world, "Vaduz", "Vaduz", "capital of")
    text = "it is the entity asked about, and no fact of this relation links an entity to itself"
    assert not reasons[text].speaks_for
    assert reasons[text].facts == ()


def test_what_takes_part_in_the_wrong_things_is_told_with_them(world):
    reasons = reasons_of(Plausibility().fit(world), world, "river 1", "Liechtenstein", "capital of", "head")
    text = "it takes part in 'flows through' as its head, and hardly anything like it is the head of 'capital of'"
    assert not reasons[text].speaks_for
    river, country = world.entity_index("river 1"), world.entity_index("country 1")
    assert reasons[text].facts == ((river, world.relation_index("flows through"), country),)


def test_what_takes_part_in_the_right_things_or_in_nothing_is_told():
    located = [(f"city {i}", "in", f"country {i % 20}") for i in range(200)]
    mayors = [(f"mayor {i}", "governs", f"city {i}") for i in range(20, 200)]
    rivers = [(f"river {i}", "flows into", f"river {i + 1}") for i in range(3000)]
    kg = KnowledgeGraph.from_triples([*located, *mayors, *rivers], valid=[("nothing", "in", "nowhere")])
    model = Plausibility().fit(kg)
    reasons = reasons_of(model, kg, "city 33", "country 1", "in", "head")
    text = "it takes part in 'governs' as its tail, like others that are the head of 'in'"
    assert reasons[text].speaks_for
    assert reasons[text].facts == ((kg.entity_index("mayor 33"), 1, kg.entity_index("city 33")),)
    governed = KnowledgeGraph.from_triples([*located[20:], *mayors, *rivers], valid=[("nothing", "in", "nowhere")])
    question = governed.query("country 1", "in", "head").with_known(None)  # then train is known
    (reason,) = Plausibility().fit(governed).explain(question, governed.entity_index("nothing"))
    assert reason.text == "it takes part in nothing that is typical of the head of 'in'"
    assert (reason.speaks_for, reason.facts) == (False, ())


def test_a_link_is_told_with_its_fact(world):
    model = Plausibility().fit(world)
    question = world.query("city 2", "capital of")
    reasons = model.explain(question, world.entity_index("country 2"))
    (reason,) = [reason for reason in reasons if "linked" in reason.text]
    assert reason.text == "it is linked to city 2 already: city 2 'in' country 2"
    assert reason.facts == ((world.entity_index("city 2"), 1, world.entity_index("country 2")),)
    assert reason.speaks_for
    assert isinstance(model, Explains)


def test_a_link_that_never_coincides_speaks_against_it():
    facts = [(f"a{i}", "likes", f"b{j}") for i in range(12) for j in range(12) if (i + j) % 2]
    facts += [(f"a{i}", "hates", f"b{j}") for i in range(12) for j in range(12) if (i + j) % 2 == 0 and i + j > 1]
    kg = KnowledgeGraph.from_triples([*facts, ("a0", "knows", "b0")])
    reasons = reasons_of(Plausibility().fit(kg), kg, "b1", "a0", "hates")
    text = "it is linked to a0 already: a0 'likes' b1, and such pairs are hardly ever linked by 'hates' as well"
    assert not reasons[text].speaks_for


def test_reasons_come_strongest_first_and_hostile_names_stay_on_one_line():
    hostile = "x\n\x1b[31m<script>{0}%s' " + "y" * 200
    kg = KnowledgeGraph.from_triples([(f"{hostile}{i}", hostile, f"z{i}") for i in range(30)])
    reasons = Plausibility().fit(kg).explain(kg.query("z0", hostile, "head"), 2)
    assert [reason.strength for reason in reasons] == sorted((reason.strength for reason in reasons), reverse=True)
    assert reasons
    assert all(reason.text.isprintable() and len(reason.text) < 400 for reason in reasons)


def test_self_loops_that_are_not_known_are_no_reason():
    kg = KnowledgeGraph.from_triples([(name, "same as", name) for name in "abcdefgh"])
    reasons = Plausibility().fit(kg).explain(kg.query("a", "same as").with_known(kg.known(())), 0)
    assert not any("asked about" in reason.text for reason in reasons)
    few = KnowledgeGraph.from_triples([("a", "likes", "a"), *((f"x{i}", "likes", f"y{i}") for i in range(300))])
    texts = reasons_of(Plausibility(signature=False).fit(few), few, "x1", "x1", "likes")
    assert "it is the entity asked about, and less than 1 % of the facts of 'likes' link an entity to itself" in texts


# Sparse look-ups.


def test_values_are_found_in_rows_of_any_length():
    dense = np.random.default_rng(0).integers(-3, 2, (7, 50)).clip(min=0)
    dense[2] = 0
    matrix = csr_array(dense)
    rows, columns = (axis.ravel() for axis in np.mgrid[:7, :50])
    np.testing.assert_array_equal(values_at(matrix, rows, columns), dense.ravel())
    assert values_at(matrix, rows[:0], columns[:0]).shape == (0,)
    assert not values_at(csr_array((7, 50)), rows, columns).any()
