"""Graphs of networkx and PyKEEN, in and out."""

import networkx
import numpy
import pytest

from cascader.datasets import Split, graph_from_networkx, graph_from_pykeen, load_graph, to_networkx, to_pykeen
from cascader.errors import DataError
from cascader.graph import Entity, KnowledgeGraph, Relation

WHOLE = Split(0, 0)


def names(kg):
    return [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.train.tolist()]


@pytest.fixture
def small():
    plain = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "s", "b")], [("b", "r", "c")], [("c", "r", "a")])
    entities = (Entity("a", "Anna", "a person", "human"), *plain.entities[1:])
    return KnowledgeGraph(
        "g", entities, (Relation("r", "knows"), *plain.relations[1:]), plain.train, plain.valid, plain.test
    )


def test_what_goes_to_networkx_comes_back_unchanged(small):
    assert graph_from_networkx(to_networkx(small)).data_hash == small.data_hash


@pytest.mark.parametrize("attribute", ["relation", "predicate", "label", "type", "edgeType"])
def test_the_relation_is_the_attribute_that_people_give_it(attribute):
    graph = networkx.DiGraph()
    graph.add_edge(1, 2, **{attribute: "treats", "weight": 0.5})
    assert names(graph_from_networkx(graph, split=WHOLE)) == [("1", "treats", "2")]


@pytest.mark.parametrize(("code", "relation"), [(7, "7"), (0, "0"), (numpy.int64(7), "7"), (True, "related to")])
def test_the_relation_may_be_an_integer(code, relation):
    graph = networkx.DiGraph()
    graph.add_edge(1, 2, relation=code)
    assert names(graph_from_networkx(graph, split=WHOLE)) == [("1", relation, "2")]


def test_an_attribute_whose_key_is_no_text_is_skipped():
    graph = networkx.DiGraph()
    graph.add_node("a", name="Anna")
    graph.nodes["a"][3] = "three"
    graph.add_edge("a", "b", relation="knows")
    graph.edges["a", "b"][("since",)] = "May"
    kg = graph_from_networkx(graph, split=WHOLE)
    assert (names(kg), kg.entities[0].name) == ([("a", "knows", "b")], "Anna")


def test_edges_without_a_relation_are_counted_in_a_warning(caplog):
    graph = networkx.DiGraph()
    graph.add_edge("a", "b", relation="knows")
    graph_from_networkx(graph, split=WHOLE)
    assert not caplog.messages
    graph.add_edge("b", "c", weight=0.5)
    graph_from_networkx(graph, split=WHOLE)
    assert "1 of 2 name no relation, and are read as 'related to'. Give them an attribute `relation`." in caplog.text


def test_the_key_of_a_multigraph_names_the_relation_and_without_any_there_is_one():
    graph = networkx.MultiDiGraph()
    graph.add_edge("a", "b", key="treats")
    graph.add_edge("a", "b")
    assert {relation for _, relation, _ in names(graph_from_networkx(graph, split=WHOLE))} == {"treats", "related to"}


def test_texts_of_nodes_are_kept_and_a_node_without_edges_too():
    graph = networkx.Graph()
    graph.add_node("d", label="aspirin", description="a drug", weight=3)
    graph.add_edge("a", "b")
    assert graph_from_networkx(graph, split=WHOLE).entities[0] == Entity("d", "aspirin", "a drug")


def test_what_is_no_graph_is_refused():
    with pytest.raises(DataError, match="found a list, expected a graph of networkx"):
        graph_from_networkx([("a", "b")])


def test_a_graph_without_edges_is_refused():
    graph = networkx.Graph()
    graph.add_node("a")
    with pytest.raises(DataError, match="the edges of the graph has no rows"):
        graph_from_networkx(graph)


def test_the_factories_of_pykeen_come_back_with_the_same_numbers(small):
    factories = to_pykeen(small)
    again = graph_from_pykeen(factories["train"], factories["valid"], factories["test"])
    assert [entity.id for entity in again.entities] == [entity.id for entity in small.entities]
    assert all((again.split(split) == small.split(split)).all() for split in ("train", "valid", "test"))


def test_a_factory_in_place_of_a_path_is_told_what_reads_it(small):
    with pytest.raises(DataError, match=r"found a TriplesFactory, .* with: cascader.graph_from_pykeen\("):
        load_graph(to_pykeen(small)["train"])


def test_a_factory_without_labels_is_refused():
    with pytest.raises(DataError, match="train is a str, expected a TriplesFactory of PyKEEN"):
        graph_from_pykeen("train")
