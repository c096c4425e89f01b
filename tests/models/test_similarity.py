import numpy as np
import pytest

from cascader.display import listening
from cascader.errors import DataError, NotFittedError, SettingsError
from cascader.graph import Entity, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.regression import Features, closed_form, nearest_neighbors
from cascader.models.similarity import Similarity
from tests.contracts import ModelContract

#: The log-odds of what nothing speaks for.
NOTHING = np.log(0.03 / 1.03)


class TestClosedForm(ModelContract):
    def make(self, kg):
        return Similarity().fit(kg)


class TestNeighbors(ModelContract):
    def make(self, kg):
        return Similarity(closed_form_up_to=0, neighbors=3).fit(kg)


@pytest.fixture(scope="module")
def random_graph():
    """Thirty entities with 150 random facts, of which some are in valid; all are in one place, so all are neighbors."""
    rng = np.random.default_rng(0)
    facts = {(int(h), int(r), int(t)) for h, r, t in rng.integers([30, 3, 30], size=(150, 3))}
    named = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(facts)]
    rng.shuffle(named)
    places = [(f"e{i}", "in", "world") for i in range(30)]
    return KnowledgeGraph.from_triples([*named[15:], *places], valid=named[:15])


def matrix_of(kg, rarity):
    """The matrix X with the weights of its columns, written as loops."""
    columns = sorted({(r, 0, int(t)) for _, r, t in kg.train} | {(r, 1, int(h)) for h, r, _ in kg.train})
    matrix = np.zeros((len(kg.entities), len(columns)))
    for h, r, t in kg.train:
        matrix[h, columns.index((r, 0, t))] = 1
        matrix[t, columns.index((r, 1, h))] = 1
    return matrix, matrix.sum(axis=0) ** -rarity, columns


def regressed(matrix, weights, ridge, entity, target):
    """The weights of all other entities in a regression of `target`, 0 for the entity itself."""
    others = np.delete(np.arange(len(matrix)), entity)
    regressors = matrix[others]
    solved = np.linalg.solve(
        regressors * weights @ regressors.T + ridge * np.eye(len(others)), regressors * weights @ target
    )
    return np.insert(solved, entity, 0)


class TestAgainstADirectRegression:
    def test_the_weights_of_each_entity_are_those_of_its_own_ridge_regression(self, random_graph):
        model = Similarity(ridge=2.0, rarity=0.5).fit(random_graph)
        matrix, weights, _ = matrix_of(random_graph, 0.5)
        expected = [regressed(matrix, weights, 2.0, e, matrix[e]) for e in range(len(matrix))]
        np.testing.assert_allclose(model.weights_, expected, atol=1e-5)

    @pytest.mark.parametrize("settings", [{}, {"closed_form_up_to": 0}], ids=["closed form", "neighbors"])
    def test_scores_are_log_odds_of_the_mean_prediction_from_both_ends(self, random_graph, settings):
        kg = random_graph
        queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
        scores = Similarity(ridge=2.0, rarity=0.5, **settings).fit(kg).score_all(queries)
        matrix, weights, columns = matrix_of(kg, 0.5)
        for row, (head, relation, tail) in enumerate(kg.valid):
            cells = [(head, (relation, 0, tail)), (tail, (relation, 1, head))]
            predictions = [
                regressed(matrix, weights, 2.0, e, matrix[e]) @ matrix[:, columns.index(c)] if c in columns else 0
                for e, c in cells
            ]
            p = np.clip(np.mean(predictions), 0, 1)
            assert scores[row, tail] == pytest.approx(np.log((p + 0.03) / (1.03 - p)), abs=1e-4)

    @pytest.mark.parametrize("settings", [{}, {"closed_form_up_to": 0}], ids=["closed form", "neighbors"])
    def test_a_train_fact_is_left_out_of_its_own_prediction(self, random_graph, settings):
        kg = random_graph
        queries = Queries.from_triples(kg.train, "tail").with_known(kg.known(("train",)))
        scores = Similarity(ridge=2.0, rarity=0.5, **settings).fit(kg).score_all(queries)
        matrix, weights, columns = matrix_of(kg, 0.5)
        for row, (head, relation, tail) in enumerate(kg.train):
            predictions = []
            for entity, column in ((head, (relation, 0, tail)), (tail, (relation, 1, head))):
                place = columns.index(column)
                without = matrix[entity].copy()
                without[place] = 0
                predictions.append(regressed(matrix, weights, 2.0, entity, without) @ matrix[:, place])
            p = np.clip(np.mean(predictions), 0, 1)
            assert scores[row, tail] == pytest.approx(np.log((p + 0.03) / (1.03 - p)), abs=1e-4)

    def test_a_ridge_that_float32_cannot_bear_is_named(self, monkeypatch, random_graph):
        features = Features(random_graph.known(("train",)), 0.0)
        with pytest.raises(SettingsError, match=r"ridge is -50, which is too small for float32 on this graph\. Use a"):
            closed_form(features, -50.0)


class TestNeighborhoods:
    def test_all_others_as_neighbors_give_the_closed_form(self, random_graph):
        features = Features(random_graph.known(("train",)), 0.5)
        whole = closed_form(features, 2.0)
        near = nearest_neighbors(features, 2.0, neighbors=31, time_limit=np.inf)
        np.testing.assert_allclose(near.weights.toarray(), whole.weights, atol=1e-5)
        np.testing.assert_allclose(near.shares, whole.shares, atol=1e-5)

    def test_a_few_neighbors_rank_as_the_closed_form_does_where_groups_are_clear(self):
        rare = [("a1", "likes", "rare"), *((f"a{i}", "likes", "less rare") for i in (1, 2, 3))]
        kg = two_groups(rare)
        for settings in ({}, {"closed_form_up_to": 0, "neighbors": 4}):
            model = Similarity(**settings).fit(kg)
            names = ("a-thing 3", "less rare", "rare", "b-thing 0")
            scores = scores_of(model, kg, kg.query("a0", "likes"), *names)
            assert scores == sorted(scores, reverse=True)
            assert len(set(scores)) == 4

    def test_only_the_nearest_are_kept(self, random_graph):
        model = Similarity(closed_form_up_to=0, neighbors=3).fit(random_graph)
        assert np.diff(model.weights_.indptr).max() == 3

    def test_it_says_why_it_compares_with_neighbors_only(self, toy):
        events = []
        with listening(events.append):
            Similarity(closed_form_up_to=5).fit(toy)
            Similarity(neighbors=2).fit(toy, time_limit=1e-9)
            Similarity().fit(toy)
        first, second, *_ = (event.text for event in events)
        assert first == ("Each of 8 entities is compared with its neighbors only: the closed form is for at most 5.")
        assert "the closed form takes about 1 s, longer than the limit of 1 s" in second

    def test_short_of_time_it_compares_with_fewer_neighbors_and_says_so(self, crowded):
        events = []
        with listening(events.append):
            near = nearest_neighbors(crowded, 5.0, neighbors=400, time_limit=1.0)
        assert 8 <= np.diff(near.weights.indptr).max() < 400
        assert "neighbors in 1 s" in events[0].text

    def test_shorter_still_the_entities_with_the_most_facts_come_first(self, crowded):
        events = []
        with listening(events.append):
            near = nearest_neighbors(crowded, 5.0, neighbors=400, time_limit=0.001)
        counts, facts = np.diff(near.weights.indptr), np.diff(crowded.matrix.indptr)
        assert 0 < (counts > 0).sum() < 5_000
        assert facts[counts > 0].min() >= facts[counts == 0].max()
        assert "of 5,000 entities, beginning with the best known, with 8 neighbors in 1 s." in events[0].text

    def test_what_very_many_entities_share_proposes_a_sample_of_them(self, monkeypatch, crowded):
        monkeypatch.setattr("cascader.models.regression._PROPOSED", 3)
        near = nearest_neighbors(crowded, 5.0, neighbors=400, time_limit=np.inf)
        counts, facts = np.diff(near.weights.indptr), np.diff(crowded.matrix.indptr)
        assert (counts <= 3 * facts).all()
        assert counts.max() > 3

    def test_neighbors_are_fewer_where_there_are_very_many_entities(self, monkeypatch, crowded):
        monkeypatch.setattr("cascader.models.regression._MOST_WEIGHTS", 60_000)
        near = nearest_neighbors(crowded, 5.0, neighbors=400, time_limit=np.inf)
        assert np.diff(near.weights.indptr).max() == 12


@pytest.fixture(scope="module")
def crowded():
    """Five thousand entities that have fifty answers between them."""
    triples = np.random.default_rng(0).integers([5_000, 2, 50], size=(12_000, 3)).astype(np.int32)
    return Features(KnownAnswers(triples, 5_000, 2), rarity=0.25)


def two_groups(extra=()):
    """Five entities that like one set of things, five that like another, and some that are missing."""
    likes = [(f"{g}{i}", "likes", f"{g}-thing {j}") for g in "ab" for i in range(5) for j in range(4)]
    missing = {("a0", "likes", "a-thing 3"), ("b1", "likes", "b-thing 0")}
    return KnowledgeGraph.from_triples([*(fact for fact in likes if fact not in missing), *extra])


def scores_of(model, kg, question, *names):
    scores = model.score_all(question)[0]
    return [scores[kg.entity_index(name)] for name in names]


class TestScores:
    def test_the_answer_of_similar_entities_comes_first_among_those_unknown(self):
        kg = two_groups()
        own, other = scores_of(Similarity().fit(kg), kg, kg.query("a0", "likes"), "a-thing 3", "b-thing 3")
        assert own > other
        assert other == pytest.approx(NOTHING, abs=0.3)

    def test_facts_that_are_added_later_count_without_refitting(self):
        kg = two_groups([("c", "likes", "new thing")])
        model = Similarity().fit(kg)
        question = kg.query("a0", "likes")
        later = [(kg.entity_index(f"a{i}"), 0, kg.entity_index("new thing")) for i in (1, 2, 3)]
        known = KnownAnswers(np.array([*kg.train, *later], dtype=np.int32), len(kg.entities), len(kg.relations))
        (before,) = scores_of(model, kg, question, "new thing")
        (after,) = scores_of(model, kg, question.with_known(known), "new thing")
        assert after > before + 1

    def test_without_known_answers_train_is_what_is_known(self, toy):
        model = Similarity().fit(toy)
        queries = Queries.from_triples(toy.valid)
        np.testing.assert_array_equal(
            model.score_all(queries), model.score_all(queries.with_known(toy.known_before("valid")))
        )

    def test_valid_and_test_are_never_learned(self, toy):
        alone = KnowledgeGraph(toy.name, toy.entities, toy.relations, toy.train, toy.valid[:0], toy.test[:0])
        np.testing.assert_array_equal(Similarity().fit(toy).weights_, Similarity().fit(alone).weights_)


class TestReasons:
    def test_it_names_similar_entities_with_the_answer_and_similar_answers_of_the_anchor(self):
        kg = two_groups()
        reasons = Similarity().fit(kg).explain(kg.query("a0", "likes"), kg.entity_index("a-thing 3"))
        assert len(reasons) == 6
        assert [reason.strength for reason in reasons] == sorted((r.strength for r in reasons), reverse=True)
        texts = {reason.text for reason in reasons}
        assert "a0 is similar to a1, for which a-thing 3 is known" in texts
        assert "a-thing 3 is similar to a-thing 0, which is known for a0" in texts
        known = {tuple(fact) for fact in kg.train.tolist()}
        assert all(set(reason.facts) <= known and len(reason.facts) == 1 for reason in reasons)

    def test_questions_for_the_head_rest_on_facts_the_right_way_round(self):
        kg = two_groups()
        reasons = Similarity().fit(kg).explain(kg.query("a-thing 3", "likes", "head"), kg.entity_index("a0"))
        assert {fact for reason in reasons for fact in reason.facts} <= {tuple(fact) for fact in kg.train.tolist()}
        assert "a0 is similar to a1, which is known for a-thing 3" in {reason.text for reason in reasons}

    def test_it_says_nothing_where_nothing_similar_is_known(self, toy):
        assert Similarity().fit(toy).explain(toy.query("placebo", "treats"), toy.entity_index("Bob")) == []

    def test_a_known_answer_is_no_reason_for_itself(self):
        kg = two_groups()
        fact = (kg.entity_index("a1"), 0, kg.entity_index("a-thing 0"))
        reasons = Similarity().fit(kg).explain(kg.query("a1", "likes"), fact[2])
        assert reasons
        assert all(fact not in reason.facts for reason in reasons)

    def test_names_are_quoted_as_they_are(self):
        hostile = "{0} <b>%s</b>\\n'"
        kg = KnowledgeGraph.from_triples([("a", "r", "x"), (hostile, "r", "x"), (hostile, "r", "y"), ("b", "r", "y")])
        (reason, *_) = Similarity().fit(kg).explain(kg.query("a", "r"), kg.entity_index("y"))
        assert hostile in reason.text


class TestNewEntities:
    def test_their_answers_are_those_of_the_entities_with_the_nearest_texts(self, toy):
        nearness = np.full((1, len(toy.entities)), -1.0, dtype=np.float32)
        nearness[0, toy.entity_index("Bob")] = 1
        view = Similarity().fit(toy).for_new_entities([Entity("n", "new")], toy, nearness)
        question = Queries(np.array([0]), np.array([toy.relation_index("prescribes")]), np.array([True]))
        scores = view.score_all(question)
        prescribed = {toy.entity_index("aspirin"), toy.entity_index("ibuprofen")}
        assert set(np.argsort(-scores[0])[:2].tolist()) == prescribed
        assert scores.dtype == np.float32

    def test_without_texts_they_are_refused(self, toy):
        with pytest.raises(DataError, match="similarity cannot answer questions about entities that toy does not have"):
            Similarity().fit(toy).for_new_entities([Entity("n", "new")], toy, None)


class TestOddGraphs:
    @pytest.mark.parametrize(
        "triples",
        [
            [("a", "r", "b")],
            [("a", "r", "a")],
            [("a", "r", "a"), ("b", "r", "b")],
            [("a", "r", "b"), ("b", "r", "a")],
        ],
        ids=["two entities", "one self-loop", "only self-loops", "symmetric"],
    )
    @pytest.mark.parametrize("settings", [{}, {"closed_form_up_to": 0}], ids=["closed form", "neighbors"])
    def test_tiny_graphs_have_finite_scores(self, triples, settings):
        kg = KnowledgeGraph.from_triples(triples)
        scores = Similarity(**settings).fit(kg).score_all(Queries.from_triples(kg.train))
        assert np.isfinite(scores).all()

    @pytest.mark.parametrize("settings", [{}, {"closed_form_up_to": 0}], ids=["closed form", "neighbors"])
    def test_what_train_has_never_seen_gets_the_score_of_no_evidence(self, settings):
        kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b")], valid=[("a", "unseen", "d")])
        model = Similarity(**settings).fit(kg)
        queries = Queries.from_triples(kg.valid).with_known(kg.known_before("valid"))
        np.testing.assert_allclose(model.score_all(queries), NOTHING, rtol=1e-5)
        alone = Queries(np.array([kg.entity_index("d")]), np.array([0]), np.array([True]))
        np.testing.assert_allclose(model.score_all(alone), NOTHING, rtol=1e-5)

    def test_a_graph_without_train_facts_has_no_similar_entities(self):
        kg = KnowledgeGraph.from_triples([], test=[("a", "r", "b")])
        for settings in ({}, {"closed_form_up_to": 0}):
            scores = Similarity(**settings).fit(kg).score_all(Queries.from_triples(kg.test))
            np.testing.assert_allclose(scores, NOTHING, rtol=1e-5)


def test_it_is_not_asked_before_it_is_fitted_nor_about_another_graph(toy, tmp_path):
    with pytest.raises(NotFittedError, match=r"similarity has not been fitted. Call fit\(kg\)"):
        Similarity().score_all(toy.query("Ann", "treats"))
    for place, settings in enumerate(({}, {"closed_form_up_to": 0})):
        Similarity(**settings).fit(toy).save(tmp_path / str(place))
        with pytest.raises(DataError, match="similarities of 8 entities with 7 facts, but graph has 2 with 1. It was"):
            Similarity.load(tmp_path / str(place), KnowledgeGraph.from_triples([("a", "r", "b")]))
