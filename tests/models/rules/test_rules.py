import numpy as np
import pytest

from cascader.display import listening
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Candidates, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.rules import Rules
from cascader.models.rules.tables import NONE
from cascader.models.rules.words import Case
from tests.contracts import ModelContract


class TestRules(ModelContract):
    def make(self, kg):
        return Rules().fit(kg)


def towns(count=6):
    """Make towns in countries on a continent: "in" twice says "part of", and everyone speaks one of two languages."""
    for place in range(count):
        yield (f"town {place}", "in", f"country {place}")
        yield (f"country {place}", "on", f"continent {place % 2}")
        yield (f"town {place}", "part of", f"continent {place % 2}")
        yield (f"town {place}", "speaks", f"language {place % 2}")


@pytest.fixture(scope="module")
def world():
    return KnowledgeGraph.from_triples(
        [*towns(), ("new town", "in", "new country"), ("new country", "on", "continent 1")], name="world"
    )


@pytest.fixture(scope="module")
def rules(world):
    return Rules().fit(world)


def found(rules, kg, target, *path):
    """The support and the body of a chain, its relations named, "~" for the other direction."""
    wanted = [_directed(kg, name) for name in path]
    chains = rules.chains_.of(_directed(kg, target))
    rows = [row for row, path in enumerate(chains.path_tuples()) if list(path) == wanted]
    return float(chains.supports[rows].sum()), float(chains.bodies[rows].sum())


def _directed(kg, name):
    return kg.relation_index(name.removeprefix("~")) + (len(kg.relations) if name.startswith("~") else 0)


def probabilities(rules, question):
    """The scores without the floor and without the logarithm."""
    return np.exp(rules.score_all(question)[0]) - 1e-3


def best(rules, kg, question):
    return kg.entities[int(rules.score_all(question)[0].argmax())].name


# What is counted.


def test_a_chain_of_two_facts_is_counted_over_all_pairs_that_it_links(rules, world):
    assert found(rules, world, "part of", "in", "on") == (6, 6)
    # Backward, six continents' towns of three each: the new town is reached, and is not a fact.
    assert found(rules, world, "~part of", "~on", "~in") == (6, 7)


def test_a_fact_is_left_out_of_its_own_evidence():
    """Without each pair itself, "r, back over r, r again" links only those who share an answer with a third."""
    kg = KnowledgeGraph.from_triples([("a", "r", "x"), ("b", "r", "x"), ("a", "r", "y"), ("b", "r", "y")])
    rules = Rules().fit(kg)
    assert found(rules, kg, "r", "r", "~r", "r") == (4, 4)  # a → x → b → y for (a, y), and so on
    lonely = KnowledgeGraph.from_triples([(f"a{i}", "r", f"x{i}") for i in range(5)])
    assert len(Rules().fit(lonely).chains_) == 0


def test_an_answer_that_goes_with_another_counts_only_where_there_is_another():
    """Everyone has one answer: that someone has any answer says nothing of which."""
    kg = KnowledgeGraph.from_triples([(f"a{i}", "r", "x") for i in range(5)] + [("b", "r", "y")])
    assert not (Rules().fit(kg).constants_.relations == 0).any()


def test_confidence_is_support_by_body_and_five_more(world):
    kg = KnowledgeGraph.from_triples(
        [(f"a{i}", "s", f"b{i}") for i in range(10)] + [(f"a{i}", "r", f"b{i}") for i in range(8)]
    )
    rules = Rules(max_constants=0).fit(kg)
    question = kg.query("a9", "r")
    # Only the eight that have "r" at all are cases of the question "which?".
    assert probabilities(rules, question)[kg.entity_index("b9")] == pytest.approx(8 / (8 + 5), rel=1e-3)
    stricter = Rules(max_constants=0, prior_count=20.0).fit(kg)
    assert probabilities(stricter, question)[kg.entity_index("b9")] == pytest.approx(8 / (8 + 20), rel=1e-3)


def test_a_chain_that_leads_to_one_entity_counts_apart_from_where_it_leads_to_many():
    """Six have one "s", which is their "r"; six have twelve, none of which is."""
    few = [(f"a{i}", r, f"b{i}") for i in range(6) for r in "rs"]
    many = [(f"c{i}", "s", f"d{i}-{j}") for i in range(6) for j in range(12)] + [(f"c{i}", "r", "e") for i in range(6)]
    asked = [("x", "s", "y"), *(("z", "s", f"d0-{j}") for j in range(12))]
    kg = KnowledgeGraph.from_triples([*few, *many, *asked])
    rules = Rules(max_length=1, max_constants=0).fit(kg)
    assert probabilities(rules, kg.query("x", "r"))[kg.entity_index("y")] == pytest.approx(6 / (6 + 5), rel=1e-3)
    assert probabilities(rules, kg.query("z", "r"))[kg.entity_index("d0-0")] < 1e-3


def test_a_constant_goes_with_a_feature():
    """Who speaks Danish lives in Denmark: four of five."""
    triples = [(f"p{i}", "speaks", "Danish") for i in range(6)]
    triples += [(f"p{i}", "lives in", "Denmark") for i in range(4)] + [("p4", "lives in", "Norway")]
    kg = KnowledgeGraph.from_triples(triples)
    rules = Rules().fit(kg).constants_
    relation, feature = kg.relation_index("lives in"), kg.relation_index("speaks")
    (row,) = np.flatnonzero((rules.targets == relation) & (rules.relations == feature) & (rules.entities != NONE))
    assert kg.entities[rules.constants[row]].name == "Denmark"
    assert (rules.supports[row], rules.bodies[row], rules.reaches[row]) == (4, 5, 6)


def test_the_best_rules_are_joined_by_noisy_or():
    """Two rules of 6 / (6 + 5): their noisy-or, and with a discount of a half, half of the second."""
    kg = KnowledgeGraph.from_triples(
        [(f"a{i}", r, f"b{i}") for i in range(6) for r in ("r", "s", "t")] + [("a", "s", "b"), ("a", "t", "b")]
    )
    confidence = 6 / (6 + 5)
    expected = {
        (5, 1.0): 1 - (1 - confidence) ** 2,
        (5, 0.5): 1 - (1 - confidence) ** 1.5,
        (1, 1.0): confidence,
    }
    for (count, discount), probability in expected.items():
        rules = Rules(best=count, discount=discount, max_constants=0, max_length=1).fit(kg)
        assert probabilities(rules, kg.query("a", "r"))[kg.entity_index("b")] == pytest.approx(probability, rel=1e-3)


def test_at_most_two_features_of_the_same_entity_are_joined():
    """Everyone who has any of three features has "x": a third feature adds nothing to two."""
    kg = KnowledgeGraph.from_triples(
        [(f"a{i}", "r", "x") for i in range(6)]
        + [(f"a{i}", s, f"{s}!") for i in range(6) for s in ("s", "t", "u")]
        + [("two", s, f"{s}!") for s in ("s", "t")]
        + [("three", s, f"{s}!") for s in ("s", "t", "u")]
    )
    rules = Rules(max_length=1).fit(kg)
    two, three = (probabilities(rules, kg.query(name, "r"))[kg.entity_index("x")] for name in ("two", "three"))
    assert two == three == pytest.approx(1 - (1 - 6 / 11) ** 1.5, rel=1e-3)
    assert len(rules.explain(kg.query("three", "r"), kg.entity_index("x"))) == 2


def test_rules_are_right_where_counting_says_so(world, rules):
    assert best(rules, world, world.query("new town", "part of")) == "continent 1"
    assert best(rules, world, world.query("new country", "in", side="head")) != "new country"


def test_what_no_rule_proposes_is_ordered_by_how_often_it_answers():
    kg = KnowledgeGraph.from_triples([("a", "r", "x"), ("b", "r", "x"), ("c", "r", "y"), ("d", "s", "e")])
    rules = Rules(max_constants=0).fit(kg)
    scores = rules.score_all(kg.query("d", "r"))[0]
    x, y, e = (scores[kg.entity_index(name)] for name in "xye")
    assert x > y > e
    assert np.isfinite(scores).all()


# Known facts.


def test_facts_that_are_known_later_count_without_fitting_again(world, rules):
    question = world.query("new country", "part of")
    before = best(rules, world, question)
    index = [world.entity_index("new country"), world.relation_index("in"), world.entity_index("country 1")]
    triples = np.concatenate([world.train, [index]]).astype(np.int32)
    later = KnownAnswers(triples, len(world.entities), len(world.relations))
    assert before != "continent 1"
    assert best(rules, world, question.with_known(later)) == "continent 1"


def test_without_known_answers_train_is_what_is_known(world, rules):
    question = world.query("new town", "part of")
    np.testing.assert_array_equal(rules.score_all(question.with_known(None)), rules.score_all(question))


def test_a_known_answer_scores_as_if_it_were_not_known():
    """The fact in question is no evidence: not as a chain, not as a feature, not as a count."""
    kg = KnowledgeGraph.from_triples(
        [(f"a{i}", "r", f"b{i % 3}") for i in range(9)] + [(f"a{i}", "s", f"b{i % 3}") for i in range(9)]
    )
    rules = Rules().fit(kg)
    question = kg.query("a0", "r")
    fact = [kg.entity_index("a0"), kg.relation_index("r"), kg.entity_index("b0")]
    without = KnownAnswers(kg.train[(kg.train != fact).any(axis=1)], len(kg.entities), len(kg.relations))
    for query, answer in ((question, "b0"), (kg.query("b0", "r", side="head"), "a0")):
        known, unknown = (probabilities(rules, query.with_known(known)) for known in (query.known, without))
        place = kg.entity_index(answer)
        assert known[place] == pytest.approx(unknown[place], rel=1e-3)


# Time, memory, chance.


def test_little_time_gives_fewer_rules_and_still_scores(world, monkeypatch):
    full = Rules().fit(world)
    assert full.stopped_ == ""
    hurried = Rules().fit(world, time_limit=1e-9)
    assert hurried.stopped_ == "chains of one fact"
    assert len(hurried.chains_) + len(hurried.constants_) < len(full.chains_) + len(full.constants_)
    assert np.isfinite(hurried.score_all(Queries.from_triples(world.train))).all()


def test_rules_are_looked_for_from_the_shortest_to_the_longest(world, monkeypatch):
    """A clock that stands still until the n-th look at it."""
    seen = []
    for looks in range(2, 60):
        clock = iter([0.0] * looks)
        monkeypatch.setattr("cascader.models.rules.miner.time.monotonic", lambda clock=clock: next(clock, 1e9))
        seen.append(Rules().fit(world, time_limit=10).stopped_)
    stages = list(dict.fromkeys(seen))
    assert stages == [
        "chains of one fact",
        "rules with a constant",
        "chains of two facts",
        "chains of three facts",
        "",
    ]


def test_the_time_limit_is_a_duration(world):
    assert Rules().fit(world, time_limit="10m").stopped_ == ""
    with pytest.raises(SettingsError, match="'soon' is not a duration"):
        Rules().fit(world, time_limit="soon")


def test_the_same_seed_gives_the_same_rules(world):
    one, other = (Rules(seed=3).fit(world) for _ in range(2))
    for name, column in one.chains_.arrays("").items():
        np.testing.assert_array_equal(column, other.chains_.arrays("")[name])
    for name, column in one.constants_.arrays("").items():
        np.testing.assert_array_equal(column, other.constants_.arrays("")[name])


def test_a_dense_graph_is_sampled_and_said_to_be(monkeypatch):
    """Every two of 40 entities are linked by two relations: a step of a chain may look at 500 ways only."""
    monkeypatch.setattr("cascader.models.rules.miner._WORK", 500)
    monkeypatch.setattr("cascader.models.rules.miner._WORK_OF_CONSTANTS", 500)
    names = [f"e{i}" for i in range(40)]
    kg = KnowledgeGraph.from_triples([(a, r, b) for r in "rs" for a in names for b in names if a != b])
    heard = []
    with listening(heard.append):
        rules = Rules().fit(kg)
    assert "anchors" in rules.sampled_
    assert "There were too many" in heard[0].text
    assert rules.describe()["rules"]["sampled"] == list(rules.sampled_)
    assert rules.chains_.bodies.max() <= 40 * 40
    assert np.isfinite(rules.score_all(kg.query("e0", "r"))).all()


def test_at_most_so_many_rules_are_kept(world):
    rules = Rules(max_chains=2, max_constants=3).fit(world)
    for target in range(2 * len(world.relations)):
        assert len(rules.chains_.of(target)) <= 2
        assert len(rules.constants_.of(target)) <= 3


def test_a_dry_run_costs_what_mining_takes(world):
    rules = Rules()
    cost = rules.dry_run(world)
    assert cost.most < 5
    assert rules.stopped_ == ""


# Odd graphs.


@pytest.mark.parametrize(
    "triples",
    [
        [("a", "r", "b")],
        [("a", "r", "a")],
        [("a", "r", "a"), ("b", "r", "b"), ("a", "r", "b")],
        [("a", "r", "b"), ("b", "r", "a")],
        [(f"a{i}", f"r{i}", f"b{i}") for i in range(5)],
        [],
    ],
    ids=["two entities", "a loop", "loops", "symmetric", "no relation repeats", "nothing"],
)
def test_tiny_and_odd_graphs_get_finite_scores(triples):
    kg = KnowledgeGraph.from_triples(triples, test=[("a", "never seen", "z"), ("z", "r", "a")])
    rules = Rules().fit(kg)
    queries = Queries.from_triples(kg.triples()).with_known(kg.known_before("test"))
    scores = rules.score_all(queries)
    assert scores.shape == (len(queries), len(kg.entities))
    assert np.isfinite(scores).all()
    for row in range(len(queries)):
        for answer in range(len(kg.entities)):
            rules.explain(queries[row : row + 1], answer)


def test_a_reflexive_relation_is_learned_and_no_other_answers_with_the_anchor():
    everyone = [f"e{i}" for i in range(20)]
    kg = KnowledgeGraph.from_triples(
        [(e, "knows", e) for e in everyone[:15]]
        + [(a, "follows", b) for a, b in zip(everyone, everyone[1:], strict=False)]
    )
    rules = Rules().fit(kg)
    assert best(rules, kg, kg.query("e19", "knows")) == "e19"
    (reason,) = rules.explain(kg.query("e19", "knows"), kg.entity_index("e19"))
    assert reason.text == "'knows' links an entity with itself in 100 % of 15 cases"
    assert best(rules, kg, kg.query("e3", "follows")) != "e3"


def test_a_symmetric_relation_is_answered_backward():
    pairs = [(f"a{i}", f"b{i}") for i in range(6)]
    kg = KnowledgeGraph.from_triples([(a, "r", b) for a, b in pairs] + [(b, "r", a) for a, b in pairs[1:]])
    assert best(Rules().fit(kg), kg, kg.query("b0", "r")) == "a0"


# Reasons.


@pytest.mark.parametrize(("cases", "said"), [(28, "68 % of 28 such cases"), (1, "100 % of 1 such case")])
def test_how_often_a_rule_held_is_said_with_the_number_of_cases(cases, said):
    assert Case(support=19 if cases > 1 else 1, body=cases, confidence=0.5).of("such case") == said


def test_a_reason_names_the_rule_and_the_facts_that_it_rests_on(world, rules):
    question = world.query("new town", "part of")
    reason = rules.explain(question, world.entity_index("continent 1"))[0]
    assert reason.text == (
        "new town in new country, and new country on continent 1 (in 100 % of 6 such cases, 'part of' holds, too)"
    )
    assert [tuple(world.entities[e].name for e in (h, t)) for h, _, t in reason.facts] == [
        ("new town", "new country"),
        ("new country", "continent 1"),
    ]
    assert reason.strength == pytest.approx(6 / 11)
    assert reason.speaks_for


def test_a_reason_with_a_constant_says_what_goes_with_what(world, rules):
    reasons = rules.explain(world.query("town 0", "speaks"), world.entity_index("language 0"))
    texts = [reason.text for reason in reasons]
    assert "town 0 part of continent 0 (in 100 % of 3 cases where that is so, language 0 is among the answers)" in texts
    heads = rules.explain(world.query("language 0", "speaks", side="head"), world.entity_index("town 0"))
    texts = [reason.text for reason in heads]
    assert "town 0 part of continent 0 (in 100 % of 3 cases where that is so, it is an answer for language 0)" in texts


def test_a_reason_tells_a_feature_with_one_entity_from_one_with_any():
    kg = KnowledgeGraph.from_triples(
        [(f"p{i}", "plays", f"game {i}") for i in range(5)]
        + [(f"p{i}", "likes", "chess" if i < 3 else "go") for i in range(5)]
    )
    reasons = Rules().fit(kg).explain(kg.query("p0", "likes"), kg.entity_index("chess"))
    assert [reason.text for reason in reasons] == [
        "p0 plays game 0 (in 60 % of 5 cases with any such 'plays', chess is among the answers)"
    ]


def test_reasons_are_few_the_strongest_first_and_never_the_fact_itself(world, rules):
    known = {tuple(triple) for triple in world.train.tolist()}
    for row in range(0, 2 * len(world.train)):
        queries = Queries.from_triples(world.train).with_known(world.known())
        question = queries[row : row + 1]
        reasons = rules.explain(question, int(question.golds[0]))
        assert len(reasons) <= 5
        assert [r.strength for r in reasons] == sorted((r.strength for r in reasons), reverse=True)
        asked = tuple(question.triples()[0].tolist())
        for reason in reasons:
            assert asked not in reason.facts
            assert known >= set(reason.facts)


def test_a_reason_survives_hostile_names():
    nasty = "<b>Bob\nTables\x1b[31m" + "x" * 200
    kg = KnowledgeGraph.from_triples(
        [(f"a{i}", r, f"b{i}") for i in range(6) for r in ("r", "{s}%")] + [(nasty, "{s}%", "b")]
    )
    (reason, *_) = Rules().fit(kg).explain(kg.query(nasty, "r"), kg.entity_index("b"))
    assert "\n" not in reason.text
    assert "\x1b" not in reason.text
    assert "{s}%" in reason.text
    assert len(reason.text) < 300


def test_what_no_rule_proposes_has_no_reason(world, rules):
    assert rules.explain(world.query("new town", "part of"), world.entity_index("town 3")) == []


# Files and errors.


def test_what_was_sampled_is_still_said_after_loading(world, tmp_path):
    rules = Rules().fit(world, time_limit=1e-9)
    rules.save(tmp_path)
    loaded = Rules.load(tmp_path, world)
    assert loaded.describe() == rules.describe()
    assert loaded.stopped_ == "chains of one fact"


def test_it_is_not_asked_before_it_is_fitted_nor_about_another_graph(toy, tmp_path):
    with pytest.raises(NotFittedError, match=r"rules has not been fitted. Call fit\(kg\)"):
        Rules().score_all(toy.query("Ann", "treats"))
    Rules().fit(toy).save(tmp_path)
    with pytest.raises(DataError, match="It was fitted to another graph"):
        Rules.load(tmp_path, KnowledgeGraph.from_triples([("a", "r", "b")]))


def test_candidates_of_many_questions_are_scored_in_small_blocks(world, rules, monkeypatch):
    queries = Queries.from_triples(world.train)
    expected = rules.score_all(queries)
    monkeypatch.setattr("cascader.models.rules.model._CELLS", 1)
    candidates = Candidates.from_lists([[row % len(world.entities), 0] for row in range(len(queries))])
    np.testing.assert_allclose(
        rules.score(queries, candidates), expected[candidates.rows, candidates.ids], rtol=1e-5, atol=1e-6
    )
