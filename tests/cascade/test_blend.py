"""Eq. 1 and Eq. 2, to the letter and with a lift."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cascader.cascade import Alpha, Fusion, Pruned, Scale, TopK, blend_all, mask_known, rerank
from cascader.errors import SettingsError
from cascader.graph import Queries
from cascader.records import conforming

SCORES = arrays.arrays(np.float32, (3, 7), elements=st.floats(-50, 50, width=32))
FUSIONS = [Fusion(scale, pruned) for scale in get_args(Scale) for pruned in get_args(Pruned)]
QUERIES = Queries(np.zeros(3, np.int32), np.zeros(3, np.int32), np.array([True, False, True]))


def reranked(scores, later, alpha, fusion, k=3):
    kept = TopK(k).keep(QUERIES, scores)
    of_kept = later[kept.rows, kept.ids]
    return kept, rerank(scores, scores, kept, of_kept, np.full(3, alpha, np.float32), fusion)


@given(scores=SCORES, later=SCORES, pruned=st.sampled_from(["unchanged", "below"]))
def test_an_alpha_of_one_is_the_identity(scores, later, pruned):
    _, after = reranked(scores, later, 1.0, Fusion("raw", pruned))
    np.testing.assert_array_equal(after, scores)


@given(scores=SCORES, later=SCORES, alpha=st.floats(0, 1, width=32), pruned=st.sampled_from(["unchanged", "below"]))
def test_a_pruned_candidate_keeps_its_score(scores, later, alpha, pruned):
    kept, after = reranked(scores, later, alpha, Fusion("raw", pruned))
    is_pruned = np.ones(scores.shape, bool)
    is_pruned[kept.rows, kept.ids] = False
    np.testing.assert_array_equal(after[is_pruned], scores[is_pruned])


@pytest.mark.parametrize("fusion", FUSIONS)
@given(scores=SCORES, later=SCORES, alpha=st.floats(0, 1, width=32))
def test_the_pruned_keep_their_order_and_the_input_is_left_alone(fusion, scores, later, alpha):
    before = scores.copy()
    kept, after = reranked(scores, later, alpha, fusion)
    np.testing.assert_array_equal(scores, before)
    for row in range(3):
        pruned = np.setdiff1d(np.arange(7), kept[row])
        order = pruned[np.argsort(-scores[row][pruned], kind="stable")]
        assert (np.diff(after[row][order]) <= 0).all()
        if fusion.pruned == "below":
            assert after[row][kept[row]].min() >= after[row][pruned].max()


@pytest.mark.parametrize("scale", get_args(Scale))
@given(scores=SCORES, later=SCORES, alpha=st.floats(0, 1, width=32))
def test_with_nothing_pruned_it_is_the_additive_ensemble(scale, scores, later, alpha):
    _, after = reranked(scores, later, alpha, Fusion(scale, "unchanged"), k=7)
    expected = blend_all(scores, later, np.full(3, alpha, np.float32), scale)
    np.testing.assert_allclose(after, expected, rtol=1e-3, atol=1e-3)


def test_to_the_letter_a_pruned_candidate_may_overtake_and_below_it_may_not():
    scores = np.array([[3.0, 2.0, 1.0]] * 3, np.float32)
    later = np.full((3, 3), -9.0, np.float32)
    _, letter = reranked(scores, later, 0.5, Fusion(pruned="unchanged"), k=2)
    _, below = reranked(scores, later, 0.5, Fusion(pruned="below"), k=2)
    assert letter[0].argmax() == 2
    assert below[0].argsort().tolist() == [2, 1, 0]


def test_what_is_known_lifts_nothing(toy):
    queries = Queries.from_triples(toy.train)[:1]
    scores = np.zeros((1, len(toy.entities)), np.float32)
    known = toy.known(("train",))
    scores[0, known.of(queries)[0]] = 99.0
    masked = mask_known(scores, queries.with_known(known))
    kept = TopK(2).keep(queries, masked)
    after = rerank(scores, masked, kept, np.ones(2, np.float32), np.zeros(1, np.float32))
    np.testing.assert_array_equal(after[0, kept[0]], [1.0, 1.0])


def test_a_relation_can_have_weights_of_its_own():
    queries = Queries(np.zeros(4, np.int32), np.array([0, 0, 1, 1], np.int32), np.array([True, False, True, False]))
    alpha = Alpha(0.2, 0.4, {1: (0.6, 0.8)})
    np.testing.assert_allclose(alpha.per_query(queries), [0.4, 0.2, 0.8, 0.6])
    assert conforming(alpha.as_dict(), Alpha, Path("tuning.json"), "") == alpha


@pytest.mark.parametrize("make", [lambda: Fusion("loud"), lambda: Fusion("raw", "above")])
def test_an_unknown_way_to_fuse_is_an_error(make):
    with pytest.raises(SettingsError, match="expected one of"):
        make()


def test_a_relation_with_an_impossible_weight_is_an_error():
    with pytest.raises(SettingsError, match="alpha for relation 3 is 1.5, expected a number from 0 to 1"):
        Alpha(0.5, 0.5, {3: (0.5, 1.5)})
