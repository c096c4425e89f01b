from dataclasses import replace

import numpy as np
import pytest

from cascader.errors import DataError, UnknownNameError
from cascader.graph import Candidates, Entity, KnowledgeGraph, NameIndex, Relation, names


def test_triples_cannot_be_written_to(toy):
    with pytest.raises(ValueError, match="read-only"):
        toy.train[0, 0] = 5
    with pytest.raises(AttributeError):
        toy.train = toy.test


def test_the_array_it_was_built_from_stays_the_callers_own():
    triples = np.array([[0, 0, 1]], dtype=np.int32)
    kg = KnowledgeGraph(
        "g", (Entity("a", "a"), Entity("b", "b")), (Relation("r", "r"),), triples, triples[:0], triples[:0]
    )
    triples[0, 0] = 1
    assert kg.train[0, 0] == 0


def test_a_triple_in_two_splits_is_an_error_that_names_it():
    with pytest.raises(DataError, match=r"train and test share 1 triple, the first: a r b\. Remove"):
        KnowledgeGraph.from_triples([("a", "r", "b")], test=[("a", "r", "b")])


def test_an_index_out_of_range_is_an_error_that_names_the_triple():
    with pytest.raises(DataError, match=r"triple 0 of train is \[0, 0, 7\], but the graph has 1 entity and 1 relation"):
        KnowledgeGraph("g", (Entity("a", "a"),), (Relation("r", "r"),), np.array([[0, 0, 7]]), np.empty(0), np.empty(0))


def test_a_repeated_id_is_an_error():
    with pytest.raises(DataError, match="entity id 'a' occurs more than once"):
        KnowledgeGraph("g", (Entity("a", "x"), Entity("a", "y")), (), np.empty(0), np.empty(0), np.empty(0))


@pytest.mark.parametrize(
    ("triple", "said"),
    [
        (("a", "r", ""), "entity 1 has the id '', expected some text"),
        (("a", " ", "b"), "relation 0 has the id '', expected some text"),
        (("a", "r\0", "b"), r"relation 0, 'r\x00', has a NUL character in 'r\x00', expected text. Remove it."),
        (("a", "r", "b\0c"), r"entity 1, 'b\x00c', has a NUL character in 'b\x00c', expected text. Remove it."),
    ],
)
def test_an_id_that_no_file_can_hold_is_refused_where_it_enters(triple, said):
    with pytest.raises(DataError) as refused:
        KnowledgeGraph.from_triples([triple])
    assert said in str(refused.value)


def test_a_text_with_a_nul_character_is_refused_with_the_entity_that_has_it():
    entities = Entity("a", "a"), Entity("b", "b", "a letter\0")
    with pytest.raises(DataError, match=r"entity 1, 'b', has a NUL character in 'a letter\\x00'"):
        KnowledgeGraph("g", entities, (Relation("r", "r"),), np.array([[0, 0, 1]]), [], [])


def test_the_data_hash_changes_with_any_text_or_triple(toy):
    renamed = KnowledgeGraph(
        toy.name, (Entity("aspirin", "Aspirin"), *toy.entities[1:]), toy.relations, toy.train, toy.valid, toy.test
    )
    moved = KnowledgeGraph(toy.name, toy.entities, toy.relations, toy.train, toy.valid, toy.test[::-1])
    hashes = {toy.data_hash, renamed.data_hash, moved.data_hash}
    assert len(hashes) == 3


def test_the_data_hash_does_not_depend_on_the_name_of_the_graph(toy):
    renamed = KnowledgeGraph("other", toy.entities, toy.relations, toy.train, toy.valid, toy.test)
    assert renamed.data_hash == toy.data_hash


def test_graphs_with_the_same_texts_in_other_places_have_other_hashes():
    x, y, triples = Entity("x", "x"), Entity("y", "y"), np.array([[0, 0, 1]])
    none = triples[:0]
    one = KnowledgeGraph("g", (x, y), (Relation("treats", "treats"), Relation("p", "p")), triples, none, none)
    other = KnowledgeGraph("g", (x, y, Entity("treats", "treats", "p", "p")), (), none, none, none)
    assert one.data_hash != other.data_hash


def test_a_list_of_entities_becomes_its_own():
    entities = [Entity("a", "a")]
    kg = KnowledgeGraph("g", entities, [], np.empty(0), np.empty(0), np.empty(0))
    entities.append(Entity("b", "b"))
    assert len(kg.entities) == 1


def test_indices_that_are_no_whole_numbers_are_an_error():
    with pytest.raises(DataError, match="triples have dtype float64, expected integers"):
        KnowledgeGraph(
            "g", (Entity("a", "a"),), (Relation("r", "r"),), np.array([[0.9, 0, 0]]), np.empty(0), np.empty(0)
        )


def test_degrees_count_both_ends_of_train_triples(toy):
    degrees = toy.degrees()
    assert degrees[toy.entity_index("aspirin")] == 4
    assert degrees[toy.entity_index("placebo")] == 0


def test_an_unknown_split_or_side_is_an_error(toy):
    with pytest.raises(DataError, match="no split 'dev'. Choose one of: train, valid, test"):
        toy.split("dev")
    with pytest.raises(DataError, match="no side 'left'"):
        toy.query("aspirin", "treats", side="left")


def test_in_html_the_graph_is_a_row_of_counts_and_its_name_is_escaped(toy):
    shown = replace(toy, name="<b>toy</b>")._repr_html_()
    cells = ["&lt;b&gt;toy&lt;/b&gt;", len(toy.entities), len(toy.relations), 7, 1, 3]
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in shown


def test_what_is_known_before_a_split_is_in_the_splits_before_it(toy):
    query = toy.query("ibuprofen", "treats")
    found = [[toy.entities[i].id for i in toy.known_before(s).of(query)[0]] for s in ("train", "valid", "test")]
    assert found == [[], ["headache", "pain"], ["headache", "fever", "pain"]]
    with pytest.raises(DataError, match="there is no split 'dev'"):
        toy.known_before("dev")


def test_no_candidates():
    nothing = Candidates.empty(3)
    assert (len(nothing), nothing.counts.tolist(), nothing.rows.tolist()) == (3, [0, 0, 0], [])


class TestNames:
    @pytest.fixture
    def kg(self):
        entities = (
            Entity("Q1", "Paris"),
            Entity("Q2", "Paris"),
            Entity("Q3", "Ludwig van Beethoven"),
            Entity("Q4", "Q3"),
            Entity("Q5", "Straße_der Vögel"),
        )
        return KnowledgeGraph("g", entities, (Relation("P1", "place of birth"),), np.empty(0), np.empty(0), np.empty(0))

    def test_an_exact_id_goes_before_a_name(self, kg):
        assert kg.entity_index("Q3") == 2

    def test_an_exact_name_is_found(self, kg):
        assert kg.entity_index("Ludwig van Beethoven") == 2

    def test_case_spacing_and_unicode_form_do_not_matter(self, kg):
        assert kg.entity_index("  ludwig  VAN beethoven ") == 2
        assert kg.entity_index("STRASSE der Vo\u0308gel") == 4
        assert kg.relation_index("Place Of Birth") == 0
        assert kg.entity_index("q5") == 4

    def test_an_ambiguous_name_offers_its_ids(self, kg):
        with pytest.raises(UnknownNameError, match=r"'Paris' names 2 entities: Paris \(Q1\), Paris \(Q2\)") as caught:
            kg.entity_index("Paris")
        assert caught.value.candidates == ("Q1", "Q2")

    def test_an_unknown_name_offers_the_closest(self, kg):
        with pytest.raises(UnknownNameError, match="no entity is called 'Beethofen'") as caught:
            kg.entity_index("Beethofen")
        assert caught.value.candidates[0] == "Q3"

    def test_a_name_like_nothing_else_says_so(self, kg):
        with pytest.raises(UnknownNameError, match="No name is similar"):
            kg.entity_index("000")

    def test_the_closest_names_can_be_asked_for(self, kg):
        assert [kg.entities[place].id for place in kg.closest_entities("Beethofen", limit=1)] == ["Q3"]

    def test_no_close_names_are_looked_for_where_none_are_wanted(self, kg):
        with pytest.raises(UnknownNameError, match=r"called 'Beethofen' \(of 5 entities\)\.$") as caught:
            kg.entity_index("Beethofen", closest=0)
        assert caught.value.candidates == ()


class TestNamesThatWouldTakeLong:
    def test_a_name_that_is_long_once_it_is_folded_is_compared_with_no_other(self, monkeypatch):
        """One of 1,000 characters became 18,000, and took seconds to compare, in which no other thread could run."""
        index = NameIndex("entity", ["Q1"], [200 * "word "])
        compared = []
        monkeypatch.setattr(names, "_similar", lambda folded, *_: compared.append(folded) or [])
        for text in ("\ufdfa" * 1000, "\ufdfa" * 100, "word " * 1000, ""):
            assert index.closest(text) == []
            with pytest.raises(UnknownNameError, match="No name is similar"):
                index.index(text)
        assert compared == []
        assert index.index("WORD " * 200) == 0  # what the graph has is found, however long

    def test_a_name_longer_than_all_others_is_not_even_folded(self, monkeypatch):
        index = NameIndex("entity", ["Q1"], ["Paris"])
        assert index.index("paris") == 0  # now all names are folded
        monkeypatch.setattr(names, "fold", lambda text: pytest.fail(f"folded {len(text):,} characters"))
        with pytest.raises(UnknownNameError):
            index.index("\u0301" * 1000)

    def test_names_are_compared_until_the_time_is_over(self):
        index = NameIndex("entity", [f"Q{i}" for i in range(10_000)], [f"name {i}" for i in range(10_000)])
        ticking = iter(range(100))
        assert index.closest("name 9999", limit=1) == [9999]
        assert index.closest("name 9999", limit=1, clock=lambda: next(ticking)) != [9999]
        assert next(ticking) == 2  # when it began, and after the first names

    def test_of_many_things_with_one_name_some_are_offered(self):
        index = NameIndex("entity", [f"Q{i}" for i in range(1000)], ["Paris"] * 1000)
        with pytest.raises(UnknownNameError, match=r"names 1,000 entities: .* and 995 more") as caught:
            index.index("Paris")
        assert len(caught.value.candidates) == 20


def test_a_sample_of_a_split_is_some_of_its_triples_in_their_order(toy):
    sample = toy.sample("train", 4, seed=0)
    places = [toy.train.tolist().index(triple) for triple in sample.tolist()]
    assert len(places) == 4
    assert places == sorted(set(places))
    np.testing.assert_array_equal(sample, toy.sample("train", 4, seed=0))
    np.testing.assert_array_equal(toy.sample("valid", 99, seed=0), toy.valid)
