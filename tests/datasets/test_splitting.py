import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascader.datasets import Split, load_graph, split_triples
from cascader.errors import DataError

triple_lists = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=60, unique=True
)


def as_triples(rows):
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


def pairs(triples):
    return {frozenset((head, tail)) for head, _, tail in triples.tolist()}


@given(triple_lists, st.integers(0, 100))
def test_nothing_is_lost_and_nothing_stands_twice(rows, seed):
    parts = split_triples(as_triples(rows), Split(0.2, 0.2, seed))
    assert sorted(map(tuple, np.concatenate(parts).tolist())) == sorted(rows)


@given(triple_lists, st.integers(0, 100))
def test_what_is_held_back_has_been_seen_in_train(rows, seed):
    train, valid, test = split_triples(as_triples(rows), Split(0.2, 0.2, seed))
    for held in (valid, test):
        assert set(held[:, [0, 2]].ravel().tolist()) <= set(train[:, [0, 2]].ravel().tolist())
        assert set(held[:, 1].tolist()) <= set(train[:, 1].tolist())


@given(triple_lists, st.integers(0, 100))
def test_two_entities_are_linked_in_one_split_only(rows, seed):
    train, valid, test = split_triples(as_triples(rows), Split(0.2, 0.2, seed))
    assert not pairs(train) & pairs(valid)
    assert not pairs(train) & pairs(test)
    assert not pairs(valid) & pairs(test)


def test_the_shares_are_met_where_the_graph_allows():
    rng = np.random.default_rng(0)
    triples = as_triples(sorted({tuple(row) for row in rng.integers([50, 3, 50], size=(2000, 3)).tolist()}))
    train, valid, test = split_triples(triples, Split(0.1, 0.2))
    assert len(valid) == pytest.approx(0.1 * len(triples), abs=3)
    assert len(test) == pytest.approx(0.2 * len(triples), abs=3)


def test_the_seed_decides_and_nothing_else():
    triples = as_triples([(i, 0, j) for i in range(12) for j in range(i)])
    first, again, other = (split_triples(triples, Split(seed=seed))[2].tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_graph_that_leaves_no_choice_keeps_everything_in_train():
    star = as_triples([(0, 0, i) for i in range(1, 20)])
    assert [len(part) for part in split_triples(star, Split())] == [19, 0, 0]


def test_unseen_entities_come_when_asked_for():
    star = as_triples([(0, 0, i) for i in range(1, 21)])
    assert [len(part) for part in split_triples(star, Split(unseen_entities=True))] == [16, 2, 2]


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.5, 0.5), (1.0, 0.0), (float("nan"), 0.1)])
def test_shares_that_cannot_be_are_an_error(shares):
    with pytest.raises(DataError, match="cannot hold out .* something is left for train"):
        Split(*shares)


def test_a_negative_seed_is_an_error():
    with pytest.raises(DataError, match="seed is -1, expected an integer of at least 0"):
        Split(seed=-1)


def test_the_users_own_splits_are_left_alone_and_a_missing_valid_comes_out_of_train(tmp_path, caplog):
    rows = [f"e{i}\tr\te{j}" for i in range(9) for j in range(i)]
    (tmp_path / "train.tsv").write_text("\n".join(rows[1:]))
    (tmp_path / "test.tsv").write_text(rows[0])
    kg = load_graph(tmp_path)
    assert len(kg.test) == 1
    assert len(kg.valid) == 4
    assert "there is no valid file: holding out 0.1 of train" in caplog.text
