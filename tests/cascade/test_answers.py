"""Answers: the best by name, and what every tier made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascader.cascade import Cascade, Fusion, Step, TopK, answers_of, best_places, known_mask
from cascader.graph import Queries
from cascader.models import Frequency
from cascader.models.embeddings import ComplEx


@pytest.fixture(scope="module")
def cascade(toy):
    second = ComplEx(dim=4, epochs=1).fit(toy)
    return Cascade(Frequency().fit(toy)).then(second, alpha=0.2, keep=TopK(2))


def answer(cascade, queries, top, known=None):
    steps = list(cascade.steps(queries.with_known(known)))
    is_known = known_mask(queries, known, steps[-1].blended.shape)
    return answers_of(steps, top, hidden=is_known, is_known=is_known)


def test_answers_come_best_first_without_what_is_known(toy, cascade):
    queries, known = Queries.from_triples(toy.test), toy.known(("train",))
    scores = cascade.score_all(queries.with_known(known))
    for row, answers in enumerate(answer(cascade, queries, 3, known=known)):
        assert [found.rank for found in answers] == [1, 2, 3]
        assert not {found.entity for found in answers} & set(known.of(queries)[row].tolist())
        assert [found.score for found in answers] == sorted((found.score for found in answers), reverse=True)
        assert all(found.score == scores[row, found.entity] for found in answers)


def traces_of(toy, cascade):
    """The two lines of each answer to a question, for those that the second tier read and for the others."""
    queries = Queries.from_triples(toy.test)[:1]
    answers = answer(cascade, queries, 8, known=toy.known(("train",)))[0]
    for found in answers:
        first, second = found.trace
        assert first.score == first.blended
        assert (second.rank, second.blended) == (found.rank, found.score)
    read, pruned = (
        [found.trace for found in answers if bool(found.trace[1].pruned) == is_so] for is_so in (False, True)
    )
    return read, pruned


def test_a_trace_has_a_line_for_every_tier(toy, cascade):
    read, pruned = traces_of(toy, cascade)
    assert (len(read), len(pruned)) == (2, 4)
    for first, second in pruned:
        assert second.score is None
        assert second.pruned == f"rank {first.rank} before it, the best 2 were read"
        assert "not read" in second.in_words()


def test_what_was_read_is_blended_and_lifted_alike_above_the_best_that_was_not(toy, cascade):
    read, pruned = traces_of(toy, cascade)
    blended = [0.2 * first.score + 0.8 * second.score for first, second in read]
    overtaking = max(second.blended for _, second in pruned) - min(blended)
    lift = overtaking + 1 if overtaking > 0 else 0
    assert [second.blended for _, second in read] == pytest.approx([score + lift for score in blended], abs=1e-5)


def test_where_nothing_is_lifted_what_was_read_is_blended_and_no_more(toy):
    second = ComplEx(dim=4, epochs=1).fit(toy)
    fusion = Fusion(pruned="unchanged")
    cascade = Cascade(Frequency().fit(toy)).then(second, alpha=0.2, keep=TopK(2), fusion=fusion)
    read, _ = traces_of(toy, cascade)
    assert len(read) == 2
    for first, second in read:
        assert second.blended == pytest.approx(0.2 * first.score + 0.8 * second.score, abs=1e-5)


def test_with_few_entities_left_there_are_few_answers(toy, cascade):
    known = toy.known(("train",))
    queries = Queries.from_triples(toy.test)
    for row, answers in enumerate(answer(cascade, queries, 100, known=known)):
        assert len(answers) == len(toy.entities) - len(known.of(queries)[row])


def test_nothing_known_leaves_nobody_out(toy, cascade):
    (answers,) = answer(cascade, Queries.from_triples(toy.test)[:1], 100)
    assert sorted(found.entity for found in answers) == np.arange(len(toy.entities)).tolist()


def test_the_shares_of_all_tiers_that_scored_an_answer_add_up_to_one(toy, cascade):
    read, pruned = traces_of(toy, cascade)
    assert [[trace.share for trace in traces] for traces in read] == [pytest.approx([0.2, 0.8])] * 2
    assert [[trace.share for trace in traces] for traces in pruned] == [[1.0, 0.0]] * 4
    assert pruned[0][1].in_words().startswith(f"rank {pruned[0][1].rank} after complex (not read: rank")


def test_answers_know_who_ranks_right_below_them(toy, cascade):
    (answers,) = answer(cascade, Queries.from_triples(toy.test)[:1], 100)
    entities = [found.entity for found in answers]
    for place, found in enumerate(answers):
        assert list(found.runners_up) == entities[place + 1 : place + 4]


few_scores = st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=12)


@given(few_scores, few_scores, st.integers(1, 14))
def test_the_best_and_their_ranks_are_those_of_a_stable_sort_of_all(first, second, top):
    """Many ties, some hidden: whoever orders all entities finds the same."""
    count = min(len(first), len(second))
    hidden = np.array([is_hidden for _, is_hidden in second[:count]])
    scores = [np.array([[score for score, _ in some[:count]]], dtype=np.float32) for some in (first, second)]
    orders = [np.argsort(np.where(hidden, np.inf, -each[0]), kind="stable")[: (~hidden).sum()] for each in scores]
    assert best_places(scores[1][0], ~hidden, top).tolist() == orders[1][:top].tolist()
    steps = [Step.of_first("kge", each, 0.0) for each in scores]
    (answers,) = answers_of(steps, top, hidden=hidden[None], is_known=hidden[None])
    ranks = [[1 + order.tolist().index(found.entity) for order in orders] for found in answers]
    assert [[trace.rank for trace in found.trace] for found in answers] == ranks
    assert [found.rank for found in answers] == list(range(1, len(answers) + 1))
