"""From the files that people have to the first answer by name, without an edit of the files; each prints its time."""

import sys
import time
from contextlib import contextmanager

import networkx
import pytest

import cascader
from tests.datasets.files import write

DRUGS, DISEASES = range(6), range(5)
#: Who treats what: each drug all diseases but one, and the same is prescribed.
TREATED = [(drug, disease) for drug in DRUGS for disease in DISEASES if (drug + disease) % 6]


@contextmanager
def timed(journey, capsys):
    """Print how long a journey takes, past pytest, which would show it only if the test failed."""
    started = time.perf_counter()
    yield
    with capsys.disabled():
        sys.stdout.write(f"\n{journey}: {time.perf_counter() - started:.1f} s\n")


def first_answer(kg):
    """What a run of rules alone says first to (drug 0, treats, ?)."""
    run = cascader.fit(kg, tiers="rules")
    return run.predict("drug 0", "treats", top=1, with_known=True)[0]


def links(relation):
    return [(f"D{drug}", relation, f"S{disease}") for drug, disease in TREATED]


def rows(separator, *relations):
    return "".join(separator.join(link) + "\n" for relation in relations for link in links(relation))


def names():
    return [(f"D{i}", f"drug {i}") for i in DRUGS] + [(f"S{i}", f"disease {i}") for i in DISEASES]


def kg_bert(folder):
    texts = "".join(f"{id_}\t{name}\n" for id_, name in names())
    long = "".join(f"{id_}\t{name}, at length\n" for id_, name in names())
    triples = rows("\t", "R1", "R2").splitlines(keepends=True)
    write(
        folder,
        train_tsv="".join(triples[:-6]),
        dev_tsv="".join(triples[-6:-3]),
        test_tsv="".join(triples[-3:]),
        entities_txt="".join(f"{id_}\n" for id_, _ in names()),
        relations_txt="R1\nR2\n",
        entity2text_txt=texts,
        entity2textlong_txt=long,
        relation2text_txt="R1\ttreats\nR2\tis prescribed for\n",
    )
    return cascader.load_graph(folder)


def strange_header(folder):
    named = dict(names())
    facts = [
        f"{named[head]};{relation};{named[tail]};2020\n"
        for relation in ("treats", "is prescribed for")
        for head, _, tail in links(relation)
    ]
    (folder / "liste.csv").write_text("\ufeffFrom Node;Beziehung;To Node;Jahr\n" + "".join(facts), encoding="utf-8")
    return cascader.load_graph(folder / "liste.csv")


def from_networkx(folder):
    graph = networkx.MultiDiGraph()
    for id_, name in names():
        graph.add_node(id_, name=name)
    for relation in ("treats", "is prescribed for"):
        for head, _, tail in links(relation):
            graph.add_edge(head, tail, label=relation)
    return cascader.graph_from_networkx(graph)


def kgx(folder):
    nodes = "".join(f"{id_}\t{name}\tbiolink:NamedThing\n" for id_, name in names())
    edges = "".join(f"e{n}\t{line}\n" for n, line in enumerate(rows("\t", "treats", "prescribed").splitlines()))
    (folder / "drugs_nodes.tsv").write_text(f"id\tname\tcategory\n{nodes}")
    (folder / "drugs_edges.tsv").write_text(f"id\tsubject\tpredicate\tobject\n{edges}")
    return cascader.load_graph(folder)


@pytest.mark.parametrize("journey", [kg_bert, strange_header, from_networkx, kgx])
def test_from_the_file_to_the_first_answer_by_name(journey, tmp_path, capsys):
    with timed(journey.__name__, capsys):
        answer = first_answer(journey(tmp_path))
    assert answer.name.startswith("disease ")
    assert answer.anchor.name == "drug 0"
