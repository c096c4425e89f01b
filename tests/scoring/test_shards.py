import numpy as np
import pytest

from cascader.errors import DataError
from cascader.graph import Candidates, Queries
from cascader.scoring import PairKeys
from cascader.scoring.engine import SHARD_PAIRS, cut


def test_pairs_are_found_again_from_their_numbers(toy):
    numbering = PairKeys(len(toy.entities), len(toy.relations))
    queries = Queries.from_triples(toy.triples()).unique()[0]
    rng = np.random.default_rng(0)
    lists = [
        sorted(rng.choice(len(toy.entities), size=1 + row % 4, replace=False).tolist()) for row in range(len(queries))
    ]
    candidates = Candidates.from_lists(lists)
    keys = numbering.of(queries, candidates)
    assert len(np.unique(keys)) == len(keys)
    found, found_candidates = numbering.pairs(np.sort(keys))
    np.testing.assert_array_equal(numbering.of(found, found_candidates), np.sort(keys))
    assert sorted(zip(found.sides, found.relations, found.anchors, strict=True)) == sorted(
        zip(queries.sides, queries.relations, queries.anchors, strict=True)
    )


def test_a_graph_of_millions_of_entities_fits_and_a_larger_one_is_refused():
    numbering = PairKeys(entity_count=5_000_000, relation_count=1000)
    query = Queries(np.array([4_999_999], np.int32), np.array([999], np.int32), np.array([True]))
    queries, candidates = numbering.pairs(numbering.of(query, Candidates.from_lists([[4_999_998]])))
    assert (queries.anchors[0], queries.relations[0], candidates.ids[0]) == (4_999_999, 999, 4_999_998)
    with pytest.raises(DataError, match="5,000,000,000 entities with 1 relations make more pairs than 64 bits"):
        PairKeys(entity_count=5_000_000_000, relation_count=1)


def test_a_block_of_questions_whose_best_twenty_are_read_has_work_for_twenty_workers():
    assert len(cut(np.arange(1024 * 20), SHARD_PAIRS)) == 20
