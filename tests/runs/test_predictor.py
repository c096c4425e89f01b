"""Answers and verdicts: new, named, in the order of their probability."""

import numpy as np
import pytest

from cascader.cascade import Cascade, Deadline, TopK
from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.runs import Predictor, with_threshold
from cascader.tuning.calibration import calibrate
from tests.tuning.worlds import Noisy, graph, questions


@pytest.fixture(scope="module")
def kg():
    return graph()


@pytest.fixture(scope="module")
def predictor(kg):
    cascade = Cascade(Noisy(kg), name="first").then(Noisy(kg, 3.0, seed=1), alpha=0.4, keep=TopK(8), name="second")
    return Predictor(kg, cascade, calibrate(cascade, kg))


def test_answers_are_new_named_and_in_the_order_of_their_probability(kg, predictor):
    known = set(map(tuple, kg.triples().tolist()))
    for answers in predictor.answer(questions(kg), top=5):
        assert [answer.rank for answer in answers] == [1, 2, 3, 4, 5]
        probabilities = [answer.probability for answer in answers]
        assert probabilities == sorted(probabilities, reverse=True)
        for answer in answers:
            head, relation, tail = answer.triple
            triple = kg.entity_index(head), kg.relation_index(relation), kg.entity_index(tail)
            assert triple not in known
            assert not answer.is_known
            assert [trace.tier for trace in answer.trace] == ["first", "second"]
            assert len(answer.why()) == 2


def test_known_facts_take_part_and_are_marked_if_they_are_wanted(kg, predictor):
    (answers,) = predictor.answer(questions(kg)[:1], top=len(kg.entities), with_known=True)
    known = kg.known().of(questions(kg)[:1])[0]
    assert sorted(answer.id for answer in answers if answer.is_known) == sorted(kg.entities[i].id for i in known)
    assert len(answers) == len(kg.entities) - 1  # all but the anchor


def test_answers_come_with_what_they_have_cost(kg, predictor):
    found = list(predictor.answer(questions(kg)[:3], top=2))
    assert [(answered.pairs, answered.complete, len(answered)) for answered in found] == [(8, True, 2)] * 3
    late = predictor.answer(questions(kg)[:1], deadline=Deadline(1e-9))
    assert [(answered.pairs, answered.complete) for answered in late] == [(0, False)]


def test_improbable_answers_are_left_out(kg, predictor):
    everyone = [answer for answers in predictor.answer(questions(kg)) for answer in answers]
    probable = [answer for answers in predictor.answer(questions(kg), min_probability=0.3) for answer in answers]
    assert probable == [answer for answer in everyone if answer.probability >= 0.3]
    assert 0 < len(probable) < len(everyone)


def test_without_a_calibration_there_are_answers_and_no_probabilities(kg):
    predictor = Predictor(kg, Cascade(Noisy(kg)), None)
    (answers,) = predictor.answer(questions(kg)[:1])
    assert {answer.probability for answer in answers} == {None}
    with pytest.raises(DataError, match="there are no probabilities"):
        next(predictor.answer(questions(kg)[:1], min_probability=0.5))
    with pytest.raises(DataError, match="no probabilities to judge by"):
        predictor.judge(kg.test[:1])
    with pytest.raises(DataError, match="no valid triples to choose a threshold on"):
        with_threshold(predictor)


def test_no_answers_cannot_be_asked_for(kg, predictor):
    with pytest.raises(SettingsError, match="top is 0, expected at least 1 answer"):
        next(predictor.answer(questions(kg), top=0))


@pytest.fixture(scope="module")
def judging(predictor):
    return with_threshold(predictor)


@pytest.fixture(scope="module")
def misses(kg, predictor):
    facts = set(map(tuple, kg.triples().tolist()))
    drawn = predictor.witnesses().near_misses(kg.test, np.random.default_rng(0))  # which knows nothing of test
    return np.array([triple for triple in drawn if tuple(triple.tolist()) not in facts])


class TestVerdicts:
    def test_facts_are_told_from_near_misses(self, kg, judging, misses):
        right = [verdict.is_true for verdict in judging.judge(kg.test)]
        wrong = [verdict.is_true for verdict in judging.judge(misses)]
        assert np.mean(right) > 0.7
        assert np.mean(wrong) < 0.3
        assert judging.calibration.verdicts.accuracy > 0.7

    def test_a_triple_is_judged_alike_alone_and_in_company(self, kg, judging, misses):
        triples = np.concatenate([kg.test[:20], kg.train[:20], misses[:20]])
        together = judging.judge(triples)
        alone = [judging.judge(triple[None])[0] for triple in triples]
        assert [verdict.probability for verdict in together] == pytest.approx([one.probability for one in alone])
        assert [verdict.is_known for verdict in together[:40]] == [True] * 40

    def test_near_misses_differ_in_one_end_and_are_no_facts(self, kg, predictor):
        missed = predictor.witnesses().near_misses(kg.valid, np.random.default_rng(0))
        assert ((missed != np.concatenate([kg.valid, kg.valid])).sum(axis=1) == 1).all()
        facts = set(map(tuple, kg.triples(("train", "valid")).tolist()))
        assert not facts & set(map(tuple, missed.tolist()))

    def test_near_misses_are_liked_by_those_who_propose_them(self, kg, predictor):
        witnesses = predictor.witnesses()
        missed = witnesses.near_misses(kg.valid, np.random.default_rng(0))
        ranks = [column for column, what in enumerate(witnesses.columns) if what.kind == "rank"]
        best = witnesses.evidence(missed, kg.known_before("valid"))[:, ranks].max(axis=1)
        assert (best >= -np.log(20)).all()  # ten that are no facts, and facts of valid

    def test_verdicts_must_be_learned_first(self, kg, predictor):
        with pytest.raises(SettingsError, match="no threshold has been chosen yet"):
            predictor.judge(kg.test)

    def test_a_graph_of_two_entities_has_verdicts(self):
        two = KnowledgeGraph.from_triples([("a", "r", "b")], valid=[("b", "r", "a")])
        cascade = Cascade(Noisy(two))
        judging = with_threshold(Predictor(two, cascade, calibrate(cascade, two)))
        assert len(judging.judge(two.train)) == 1
