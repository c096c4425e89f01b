"""Data frames: the graph is the one that files would give, and what cannot be is said."""

import subprocess
import sys

import networkx
import pandas
import pytest

import cascader
from cascader import Split
from cascader.datasets.frames import graph_from_frames, to_frame, triples_of
from cascader.errors import DataError
from cascader.graph import Entity, Relation
from cascader.runs import Verdict
from tests.datasets.test_statements import PRIMEKG

ROWS = [(f"d{i}", "treats", f"s{j}") for i in range(6) for j in range(5)]
TRIPLES = pandas.DataFrame(ROWS, columns=["head", "relation", "tail"])
NOTHING_HELD_BACK = Split(valid=0, test=0)


def test_a_frame_gives_the_graph_that_a_file_of_the_same_rows_gives(tmp_path):
    TRIPLES.to_csv(tmp_path / "graph.csv", index=False)
    ids = sorted({*TRIPLES["head"], *TRIPLES["tail"]})
    entities = pandas.DataFrame({"id": ids, "name": [f"name of {id_}" for id_ in ids], "description": "some text"})
    entities.to_csv(tmp_path / "entities.csv", index=False)
    read = cascader.load_graph(tmp_path / "graph.csv", entities=tmp_path / "entities.csv")
    made = graph_from_frames(TRIPLES, entities=entities)
    assert made.data_hash == read.data_hash
    assert made.entities[0] == Entity("d0", "name of d0", "some text")


def test_names_and_types_beside_the_ids_are_kept_as_in_a_file(tmp_path):
    (tmp_path / "graph.csv").write_text(PRIMEKG)
    read = cascader.load_graph(tmp_path / "graph.csv", split=NOTHING_HELD_BACK)
    made = graph_from_frames(pandas.read_csv(tmp_path / "graph.csv"), split=NOTHING_HELD_BACK)
    assert made.entities == read.entities == (Entity("0", "Aspirin", type="drug"), Entity("1", "pain", type="disease"))
    assert made.relations == read.relations == (Relation("indication", "treats"),)


def test_columns_can_be_chosen_as_in_a_file():
    frame = pandas.DataFrame({"Wirkstoff": ["a"], "Art der Beziehung": ["hilft gegen"], "Krankheit": ["b"]})
    chosen = ("Wirkstoff", "Art der Beziehung", "Krankheit")
    kg = graph_from_frames(frame, columns=chosen, split=NOTHING_HELD_BACK)
    assert [entity.id for entity in kg.entities] == ["a", "b"]
    with pytest.raises(DataError, match=r"say which they are with columns=\('HEAD', 'RELATION', 'TAIL'\)"):
        graph_from_frames(frame)
    with pytest.raises(DataError, match=r"no columns drug, r, t. Its first row is 'wirkstoff, art_der_beziehung"):
        graph_from_frames(frame, columns=("drug", "r", "t"))


def test_a_frame_without_names_of_columns_has_their_numbers():
    kg = graph_from_frames(pandas.DataFrame(ROWS), columns=(0, 1, 2), split=NOTHING_HELD_BACK)
    assert kg.data_hash == graph_from_frames(TRIPLES, split=NOTHING_HELD_BACK).data_hash
    with pytest.raises(DataError, match=r"no columns 1, 2, 3. Its first row is '0, 1, 2'"):
        graph_from_frames(pandas.DataFrame(ROWS), columns=(1, 2, 3))


def test_which_column_is_the_relation_is_asked_in_the_words_of_python():
    frame = pandas.DataFrame({"source": ["a"], "how": ["r"], "since": ["May"], "target": ["b"]})
    with pytest.raises(DataError, match=r"Say so with columns=\('source', 'how', 'target'\), for instance"):
        graph_from_frames(frame)


def test_splits_of_ones_own_are_kept():
    parts = TRIPLES[:20], TRIPLES[20:25], TRIPLES[25:]
    kg = graph_from_frames(parts[0], valid=parts[1], test=parts[2], name="mine")
    assert (kg.name, len(kg.train), len(kg.valid), len(kg.test)) == ("mine", 20, 5, 5)


def test_other_names_other_columns_and_numbers_as_ids_are_fine(caplog):
    frame = pandas.DataFrame({"Subject": [1, 2], "weight": [0.5, 0.7], "predicate": "r", "object": [2, 3]})
    kg = graph_from_frames(frame, split=NOTHING_HELD_BACK)
    assert [entity.id for entity in kg.entities] == ["1", "2", "3"]
    assert "ignored column weight" in caplog.text


def test_relations_have_names_of_their_own():
    relations = pandas.DataFrame({"id": ["treats"], "name": ["is a drug for"]})
    kg = graph_from_frames(TRIPLES, relations=relations)
    assert kg.relations == (Relation("treats", "is a drug for"),)


def test_a_frame_need_not_be_of_pandas():
    class Frame:
        def __init__(self, **columns):
            self.columns = list(columns)
            self._columns = columns

        def __getitem__(self, name):
            return iter(self._columns[name])

    assert triples_of(Frame(head="ab", relation="rr", tail="bc")) == [("a", "r", "b"), ("b", "r", "c")]


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT, " "])
def test_a_missing_cell_of_a_triple_is_named(missing):
    frame = pandas.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", missing]}, dtype=object)
    with pytest.raises(DataError, match=r"the frame of triples, row 2: found an empty field in \('b', 'r', ''\)"):
        graph_from_frames(frame)


def test_a_missing_text_of_an_entity_is_none():
    entities = pandas.DataFrame({"id": ["a", "b"], "name": ["A", None], "description": [None, "a letter"]})
    frame = pandas.DataFrame([("a", "r", "b")], columns=["head", "relation", "tail"])
    kg = graph_from_frames(frame, entities=entities, split=NOTHING_HELD_BACK)
    assert kg.entities == (Entity("a", "A"), Entity("b", "b", "a letter"))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (TRIPLES.drop(columns="tail"), "the header head, relation has no column for tail"),
        (TRIPLES[:0], "the frame of triples has no rows of text"),
        ({"head": ["a"]}, "triples is a dict, expected a data frame"),
        (ROWS, "triples is a list, expected a data frame"),
    ],
)
def test_what_is_no_frame_of_triples_is_refused(frame, message):
    with pytest.raises(DataError, match=message):
        graph_from_frames(frame)


@pytest.mark.parametrize(
    ("graph", "advice"),
    [
        (TRIPLES, r"found a DataFrame, .* Make a graph of it with: cascader.graph_from_frames\(triples\)$"),
        (networkx.DiGraph(), r"found a DiGraph, .* with: cascader.graph_from_networkx\(graph\)$"),
        (ROWS, r"found a list, .* with: cascader.KnowledgeGraph.from_triples\(triples\)$"),
        ({1}, "found a set, expected a name or a path.$"),
    ],
)
def test_fit_names_what_makes_a_graph_of_an_object(graph, advice):
    with pytest.raises(DataError, match=advice):
        cascader.fit(graph)


def test_an_entity_that_the_table_does_not_have_is_named():
    with pytest.raises(DataError, match="entity 's0' is not in the frame of entities"):
        graph_from_frames(TRIPLES, entities=pandas.DataFrame({"id": ["d0"]}))


def test_a_triple_in_two_splits_is_refused():
    with pytest.raises(DataError, match="the frame of test, row 1: this triple of test is also in train"):
        graph_from_frames(TRIPLES, test=TRIPLES[:1])


def test_verdicts_become_a_frame():
    verdict = Verdict(Entity("a", "A"), Relation("r", "R"), Entity("b", "B"), 0.25, threshold=0.5, is_known=True)
    frame = to_frame([verdict, verdict])
    assert list(frame.columns) == ["head", "relation", "tail", "probability", "threshold", "is_true", "is_known"]
    assert frame["probability"].tolist() == [0.25, 0.25]
    assert to_frame([]).empty


def test_without_pandas_the_error_says_how_to_install_it():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import cascader\n"
        "try: cascader.to_frame([])\n"
        "except cascader.MissingExtraError as error: print(error)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.startswith("data frames need pandas. Install it with: pip install 'cascader[pandas]'")
