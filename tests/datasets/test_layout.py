"""Folders as other projects lay them out."""

import gzip

import pytest

from cascader.datasets import Split, load_graph, save_graph
from cascader.errors import DataError
from cascader.graph import Entity, KnowledgeGraph, Relation
from tests.datasets.files import write

WHOLE = Split(0, 0)


def names(kg, split="train"):
    return [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.split(split).tolist()]


def kg_bert(folder):
    return write(
        folder,
        train_tsv="d1\tr1\ts1\nd2\tr1\ts1\n",
        dev_tsv="d1\tr1\ts2\n",
        test_tsv="d2\tr1\ts2\n",
        entities_txt="d1\nd2\ns1\ns2\n",
        relations_txt="r1\n",
        entity2text_txt="d1\taspirin\nd2\tibuprofen\ns1\tpain\ns2\tfever\nzz\tnot in the graph\n",
        entity2textlong_txt="d1\ta salicylate\ns1\tan unpleasant feeling\n",
        relation2text_txt="r1\ttreats\n",
    )


class TestKgBert:
    def test_names_and_descriptions_stand_in_files_of_their_own(self, tmp_path):
        kg = load_graph(kg_bert(tmp_path))
        assert kg.entities[0] == Entity("d1", "aspirin", "a salicylate")
        assert [entity.name for entity in kg.entities] == ["aspirin", "ibuprofen", "pain", "fever"]
        assert kg.relations == (Relation("r1", "treats"),)
        assert [len(kg.split(split)) for split in ("train", "valid", "test")] == [2, 1, 1]

    def test_texts_without_a_list_leave_the_entities_to_the_triples(self, tmp_path):
        kg_bert(tmp_path)
        (tmp_path / "entities.txt").unlink()
        assert [entity.id for entity in load_graph(tmp_path).entities] == ["d1", "s1", "d2", "s2"]

    def test_a_table_that_is_named_takes_the_place_of_all_of_them(self, tmp_path):
        kg_bert(tmp_path)
        mine = tmp_path / "mine.tsv"
        mine.write_text("s2\tFever\ns1\tPain\nd2\tIbuprofen\nd1\tAspirin\n")
        kg = load_graph(tmp_path, entities=mine)
        assert kg.entities[3] == Entity("d1", "Aspirin")
        assert kg.relations[0].name == "treats"


@pytest.mark.parametrize("header", ["", "id\n", "entity_id\n"])
def test_a_table_of_one_column_is_a_list_of_ids(tmp_path, header):
    write(tmp_path, train_tsv="a\tr\tb\n", list_csv=f"{header}b\na\n")
    kg = load_graph(tmp_path / "train.tsv", entities=tmp_path / "list.csv", split=WHOLE)
    assert kg.entities == (Entity("b", "b"), Entity("a", "a"))


class TestKgx:
    def test_nodes_and_edges_under_the_name_of_the_graph(self, tmp_path):
        write(
            tmp_path,
            drugs_nodes_tsv="id\tcategory\tname\txref\nCHEBI:1\tbiolink:Drug\taspirin\t\nMONDO:2\tDisease\tpain\tx\n",
            drugs_edges_tsv="id\tsubject\tpredicate\tobject\trelation\ne1\tCHEBI:1\tbiolink:treats\tMONDO:2\tRO:1\n",
        )
        kg = load_graph(tmp_path, split=WHOLE)
        assert kg.entities[0] == Entity("CHEBI:1", "aspirin", type="biolink:Drug")
        assert names(kg) == [("CHEBI:1", "biolink:treats", "MONDO:2")]


class TestNeo4j:
    def test_several_files_of_nodes_and_relationships_by_their_headers(self, tmp_path):
        write(
            tmp_path,
            drugs_csv="drugId:ID(Drug),name:string,:LABEL\nd1,aspirin,Drug\n",
            diseases_csv="diseaseId:ID(Disease),name,:LABEL\ns1,pain,Disease\ns2,fever,Disease\n",
            treats_csv=":START_ID(Drug),since:int,:END_ID(Disease),:TYPE\nd1,1897,s1,TREATS\n",
            causes_csv=":START_ID(Drug),since:int,:END_ID(Disease),:TYPE\nd1,1897,s2,CAUSES\n",
        )
        kg = load_graph(tmp_path, split=WHOLE)
        assert {*names(kg)} == {("d1", "TREATS", "s1"), ("d1", "CAUSES", "s2")}
        assert Entity("d1", "aspirin", type="Drug") in kg.entities

    @pytest.mark.parametrize("quote", ["", '"'])
    def test_an_id_in_two_id_spaces_is_two_entities_told_apart_by_the_space(self, tmp_path, quote):
        name = f"{quote}aspirin{quote}"
        write(
            tmp_path,
            drugs_csv=f"drugId:ID(Drug),name\n1,{name}\n2,ibuprofen\n",
            diseases_csv="diseaseId:ID(Disease),name\n1,pain\n",
            genes_csv="geneId:ID(Gene),name\n7,F2\n",
            treats_csv=":START_ID(Drug),:END_ID(Disease),:TYPE\n1,1,TREATS\n",
            binds_csv=":START_ID(Drug),:END_ID(Gene),:TYPE\n2,7,BINDS\n",
        )
        kg = load_graph(tmp_path, split=WHOLE)
        assert {*names(kg)} == {("Drug:1", "TREATS", "Disease:1"), ("Drug:2", "BINDS", "7")}
        assert Entity("Disease:1", "pain") in kg.entities

    def test_an_id_in_two_files_is_an_error(self, tmp_path):
        write(tmp_path, a_csv="id:ID\n1\n", b_csv="id:ID\n1\n", r_csv=":START_ID,:TYPE,:END_ID\n1,r,1\n")
        with pytest.raises(DataError, match="entity id '1' is in more than one of .*a.csv, .*b.csv"):
            load_graph(tmp_path)


class TestOpenKe:
    def test_a_folder_of_it_has_heads_tails_and_relations_by_number(self, tmp_path):
        write(
            tmp_path,
            entity2id_txt="3\npain\t1\naspirin tablet\t0\nfever\t2\n",
            relation2id_txt="1\ntreats 0\n",
            train2id_txt="1\n0 1 0\n",
            valid2id_txt="0\n",
            test2id_txt="1\r\n0\t2\t0\r\n",
        )
        kg = load_graph(tmp_path)
        assert names(kg) == [("aspirin tablet", "treats", "pain")]
        assert names(kg, "test") == [("aspirin tablet", "treats", "fever")]

    def test_its_columns_cannot_be_chosen(self, tmp_path):
        write(tmp_path, entity2id_txt="2\na\t0\nb\t1\n", relation2id_txt="1\nr\t0\n", train2id_txt="1\n0 1 0\n")
        with pytest.raises(DataError, match="is a folder of OpenKE or OGB, .* Leave out --columns"):
            load_graph(tmp_path, columns=("x", "y", "z"))

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("train2id_txt", "2\n0 1 0\n", "train2id.txt:1: found '2' above 1 line, expected their number"),
            ("train2id_txt", "1\n0 0 1\n", "train2id.txt:2: found '0 0 1', expected the numbers of head, tail and"),
            ("entity2id_txt", "2\na\t0\nb\t0\n", "entity2id.txt:3: found .*expected an id and its own number below 2"),
        ],
    )
    def test_what_cannot_be_is_said(self, tmp_path, file, content, message):
        fine = {"entity2id_txt": "2\na\t0\nb\t1\n", "relation2id_txt": "1\nr\t0\n", "train2id_txt": "1\n0 1 0\n"}
        write(tmp_path, **{**fine, file: content})
        with pytest.raises(DataError, match=message):
            load_graph(tmp_path)

    def test_a_graph_comes_back_but_for_the_white_space_in_its_texts(self, tmp_path):
        plain = KnowledgeGraph.from_triples([("a 1", "r", "b")], [("b", "r", "a 1")])
        entities = (Entity("a 1", "Anna", "one\n\ttext  here", "human"), plain.entities[1])
        kg = KnowledgeGraph("g", entities, (Relation("r", "knows"),), plain.train, plain.valid, plain.test)
        again = load_graph(save_graph(kg, tmp_path / "g", "openke"))
        assert again.entities == (Entity("a 1", "Anna", "one text here", "human"), Entity("b", "b"))
        assert again.relations == kg.relations
        assert [names(again, split) for split in ("train", "valid", "test")] == [
            [("a 1", "r", "b")],
            [("b", "r", "a 1")],
            [],
        ]

    def test_an_id_that_its_lines_cannot_hold_is_refused(self, tmp_path):
        write(tmp_path, g_csv='"a\nb",r,c\n')
        with pytest.raises(DataError, match="has a tab or a line break, which OpenKE's files cannot hold"):
            save_graph(load_graph(tmp_path / "g.csv", split=WHOLE), tmp_path / "out", "openke")


def zipped(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


class TestOgb:
    def test_edges_by_number_and_what_the_numbers_mean(self, tmp_path, caplog):
        zipped(tmp_path / "raw/edge.csv.gz", "0,1\n1,2\n")
        zipped(tmp_path / "raw/edge_reltype.csv.gz", "0\n1\n")
        zipped(tmp_path / "mapping/nodeidx2entityid.csv.gz", "node idx,entity id\n0,Q1\n1,Q2\n2,Q3\n")
        zipped(tmp_path / "mapping/reltype2relid.csv.gz", "reltype,rel id\n0,P1\n1,P2\n")
        (tmp_path / "split").mkdir()
        assert names(load_graph(tmp_path, split=WHOLE)) == [("Q1", "P1", "Q2"), ("Q2", "P2", "Q3")]
        assert "OGB keeps valid and test as pickles, which are never read" in caplog.text

    def test_edges_by_kind_whose_numbers_count_within_a_type(self, tmp_path):
        zipped(tmp_path / "raw/relations/drug___treats___disease/edge.csv.gz", "0,0\n")
        zipped(tmp_path / "mapping/drug_entidx2name.csv.gz", "ent idx,ent name\n0,DB1\n")
        kg = load_graph(tmp_path, split=WHOLE)
        assert kg.entities == (Entity("drug:DB1", "DB1", type="drug"), Entity("disease:0", "disease:0"))

    def test_what_cannot_be_is_said(self, tmp_path):
        zipped(tmp_path / "raw/edge.csv.gz", "0,1\n1,x\n")
        with pytest.raises(DataError, match="edge.csv.gz:2: found '1,x', expected 2 whole numbers"):
            load_graph(tmp_path)
