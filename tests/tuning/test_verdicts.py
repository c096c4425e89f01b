"""Verdicts learn what counts, never hold more evidence against a triple, and follow the labels of their users."""

import numpy as np
import pytest

from cascader.errors import DataError
from cascader.tuning.verdicts import Evidence, Examples, VerdictLearner, WeighedEvidence, with_labels

COLUMNS = [Evidence("kge", "score", "tail"), Evidence("rules", "rank", "head")]
LEARNER = VerdictLearner(COLUMNS, ["treats", "causes"])


def examples(count=400, seed=0, shift=0.0, relations=(0, 1)):
    """The first column tells facts apart, from a level that depends on the relation; the second is noise."""
    draw = np.random.default_rng(seed)
    is_true, relation = draw.random(count) < 0.5, draw.choice(relations, count)
    first = draw.normal(size=count) + 2.0 * is_true + 3.0 * relation + shift
    values = np.column_stack([first, draw.normal(size=count)])
    return Examples(values, relation, is_true, np.ones(count), np.arange(count))


def is_right(model, judged):
    found = model.probabilities(judged.values, [LEARNER.relations[index] for index in judged.relations])
    return ((found >= model.threshold) == judged.is_true).mean()


def test_what_tells_facts_apart_counts_and_noise_does_not():
    model = LEARNER.learned(examples())
    (strongest, gain), *others = model.strongest()
    assert strongest == COLUMNS[0]
    assert all(gain > 4 * other for _, other in others)
    assert is_right(model, examples(seed=1)) == pytest.approx(model.accuracy, abs=0.05)
    assert model.accuracy > 0.75


def test_more_evidence_never_speaks_against_a_triple():
    against = examples()
    model = LEARNER.learned(Examples(-against.values, *(against[:].__dict__[n] for n in list(against.__dict__)[1:])))
    steps = np.column_stack([np.linspace(-20, 20, 200)] * 2)
    assert (np.diff(model.probabilities(steps, ["treats"] * 200)) >= 0).all()


def test_a_relation_has_its_own_offset_and_one_without_examples_that_of_all():
    model = LEARNER.learned(examples())
    assert model.relations["causes"] < -0.5 < 0.5 < model.relations["treats"]
    one = LEARNER.learned(examples(relations=(0,)))
    assert list(one.relations) == ["treats"]
    assert one.probabilities(np.zeros((1, 2)), ["never seen"]) == pytest.approx(
        1 / (1 + np.exp(-(one.intercept + sum(each.adds(np.zeros(1))[0] for each in one.evidence))))
    )


def test_labels_from_elsewhere_change_the_verdicts_the_more_the_more_there_are():
    valid, elsewhere = examples(), examples(seed=2, shift=-2.0)
    before = is_right(LEARNER.learned(valid), elsewhere)
    few, many = (is_right(LEARNER.learned(valid, examples(n, 3, -2.0)), elsewhere) for n in (20, 300))
    assert before < few < many
    assert LEARNER.learned(valid, examples(20, 3)).labels == 20
    first, after = LEARNER.label_accuracies(valid, examples(100, 3, -2.0))
    assert first == pytest.approx(before, abs=0.1)
    assert after > first + 0.1


def test_a_hundred_labels_count_as_much_as_all_of_valid():
    blended = with_labels(examples(400), examples(100))
    assert blended.weights[:400].sum() == pytest.approx(blended.weights[400:].sum())


@pytest.mark.parametrize(("knots", "gains"), [((0.0, 0.0), (1.0,)), ((1.0, 0.0), (1.0,)), ((0.0, 1.0), ())])
def test_knots_that_do_not_rise_or_match_the_gains_are_refused(knots, gains):
    with pytest.raises(DataError, match="do not rise, or do not match its gains"):
        WeighedEvidence("kge", "score", "tail", knots, gains)
