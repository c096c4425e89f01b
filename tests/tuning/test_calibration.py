"""Probabilities that follow the score, are near the truth, and come back from a file."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from cascader.cascade import Cascade, Fusion, TopK, known_mask
from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph, Queries
from cascader.records import write_record
from cascader.tuning.calibration import (
    calibrate,
    calibrate_open,
    calibration_triples,
    hash_of_cascade,
    load_calibration,
    save_calibration,
)
from cascader.tuning.curves import evidence, expected_calibration_error, fit_logistic, with_steps
from tests.tuning.worlds import Noisy, graph, questions


@pytest.fixture(scope="module")
def kg():
    return graph()


CASCADES = {
    "one tier": lambda kg: Cascade(Noisy(kg)),
    "a sum": lambda kg: Cascade(Noisy(kg)).then(Noisy(kg, seed=1), alpha=0.5, fusion=Fusion("standardized")),
    "a tier that reads": lambda kg: Cascade(Noisy(kg)).then(Noisy(kg, 4.0, seed=1), alpha=0.3, keep=TopK(5)),
    "scores that are all alike": lambda kg: Cascade(Noisy(kg, gain=0.0)),
}


@pytest.mark.parametrize("name", CASCADES)
def test_within_a_question_a_higher_score_never_has_a_lower_probability(kg, name):
    cascade = CASCADES[name](kg)
    calibration = calibrate(cascade, kg)
    asked = questions(kg)
    scores = cascade.score_all(asked.with_known(kg.known()))
    scores[:, 1] = scores[:, 0]  # ties, too
    is_known = known_mask(asked, kg.known(), scores.shape)
    probabilities = calibration.probabilities(asked, scores, is_known)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    for of_row, by_score in zip(probabilities, np.argsort(scores, axis=1), strict=True):
        assert (np.diff(of_row[by_score]) >= -1e-12).all()
    assert (probabilities[:, 1] == probabilities[:, 0]).all()


def test_probabilities_are_nearer_to_the_truth_than_shares_and_hold_on_other_questions(kg):
    cascade = Cascade(Noisy(kg))
    calibration = calibrate(cascade, kg)
    assert calibration.reliability.error_after < calibration.reliability.error_before / 2
    asked = questions(kg, "valid")
    known = kg.known(("train",))
    scores = cascade.score_all(asked)
    splits = kg.known(("train", "test")), kg.known(("valid",))
    is_other, is_gold = (known_mask(asked, answers, scores.shape) for answers in splits)
    is_known = known_mask(asked, known, scores.shape)
    probabilities = calibration.probabilities(asked, scores, is_known)[~is_other]
    assert probabilities.sum() == pytest.approx(is_gold.sum(), rel=0.05)
    assert expected_calibration_error(probabilities, is_gold[~is_other]) < 0.02


def test_the_errors_are_those_of_the_bins_on_half_of_the_questions(kg):
    found = calibrate(Cascade(Noisy(kg)), kg).reliability
    assert found.questions == sum(np.sum(questions(kg, "valid").predicts_tail == side) // 2 for side in (True, False))
    for bins, error in ((found.before, found.error_before), (found.after, found.error_after)):
        assert sum(each.answers for each in bins) == found.answers
        assert sum(each.answers * each.found for each in bins) == pytest.approx(found.golds)
        distances = [each.answers * abs(each.predicted - each.found) for each in bins]
        assert sum(distances) / found.answers == pytest.approx(error)


def test_what_judges_the_probabilities_has_not_taught_them(kg, monkeypatch):
    """Whatever the judged half of the questions says, the curve that is judged, and its kind, stay as they are."""
    from cascader.tuning import calibration

    judged = []

    def remembered(curve, answers, judge=calibration._judged):
        judged.append((curve, answers))
        return judge(curve, answers)

    monkeypatch.setattr(calibration, "_judged", remembered)
    calibrate(Cascade(Noisy(kg)), kg)
    before = list(judged)
    answers_of = calibration._answers

    def with_others_judged(*arguments):
        found = answers_of(*arguments)
        for _, others in before:
            for other in others:
                place = next(i for i, each in enumerate(found) if np.array_equal(each.evidence, other.evidence))
                found[place] = replace(found[place], is_gold=~found[place].is_gold)
        return found

    monkeypatch.setattr(calibration, "_answers", with_others_judged)
    judged.clear()
    calibrate(Cascade(Noisy(kg)), kg)
    assert [curve for curve, _ in judged] == [curve for curve, _ in before]


def test_levels_and_scales_of_questions_do_not_matter():
    scores, is_known = np.array([0.3, -1.0, 2.0, 0.1]), np.array([False, False, False, True])
    assert np.allclose(evidence(scores, is_known), evidence(7 * scores - 3, is_known))


def test_the_evidence_for_some_entities_is_theirs_among_all():
    scores, is_known = np.array([0.3, -1.0, 2.0, 0.3, 5.0]), np.array([False, False, False, False, True])
    places = np.array([4, 0])
    assert evidence(scores, is_known, places).tolist() == evidence(scores, is_known)[places].tolist()


@pytest.mark.parametrize(("entity_count", "triples"), [(100, 2000), (1_000_000, 250), (10**9, 1)])
def test_a_large_graph_is_calibrated_on_fewer_triples(entity_count, triples):
    assert calibration_triples(entity_count) == triples


def test_a_question_with_nothing_left_to_answer_has_finite_evidence():
    assert np.isfinite(evidence(np.array([1.0, 2.0]), np.array([True, True]))).all()
    assert np.isfinite(evidence(np.array([1.0, 1.0, 1.0]), np.array([False, False, True]))).all()


def test_logistic_weights_are_found_again_and_never_negative():
    draw = np.random.default_rng(0)
    seen = draw.normal(size=(20_000, 3))
    is_gold = draw.random(len(seen)) < expit(seen @ [1.5, -1.0, -0.5] - 1)
    ones = np.ones(len(seen))
    curve = fit_logistic(seen, is_gold, ones)
    assert curve.weights[1] == 0  # a share or a rank that speaks against an answer would turn the ranking round
    assert curve.weights[2] < 0
    seen[:, 1] = 0
    is_gold = draw.random(len(seen)) < expit(seen @ [1.5, 0.0, -0.5] - 1)
    curve = fit_logistic(seen, is_gold, ones)
    assert curve.weights == pytest.approx((1.5, 0, -0.5), abs=0.1)
    assert curve.intercept == pytest.approx(-1, abs=0.1)


def test_an_answer_that_stands_for_three_counts_three_times():
    draw = np.random.default_rng(0)
    seen, is_gold = draw.normal(size=(300, 3)), draw.random(300) < 0.3
    counts = draw.integers(1, 4, size=300).astype(float)
    repeated = np.repeat(np.arange(300), counts.astype(int))
    once = with_steps(fit_logistic(seen, is_gold, counts), seen, is_gold, counts)
    often = with_steps(
        fit_logistic(seen[repeated], is_gold[repeated], np.ones(len(repeated))),
        seen[repeated],
        is_gold[repeated],
        np.ones(len(repeated)),
    )
    assert once.probabilities(seen) == pytest.approx(often.probabilities(seen), abs=0.02)


def test_steps_never_fall():
    draw = np.random.default_rng(1)
    seen, is_gold = draw.normal(size=(500, 3)), draw.random(500) < 0.3
    curve = with_steps(fit_logistic(seen, is_gold, np.ones(500)), seen, is_gold, np.ones(500))
    assert curve.kind == "isotonic"
    assert (np.diff(curve.values) >= 0).all()
    assert (np.diff(curve.sums) > 0).all()


def test_a_single_valid_triple_and_a_graph_of_two_entities_are_enough(toy):
    assert calibrate(Cascade(Noisy(toy)), toy).reliability.golds > 0
    two = KnowledgeGraph.from_triples([("a", "r", "b")], valid=[("b", "r", "a")])
    calibration = calibrate(Cascade(Noisy(two)), two)
    scores = Noisy(two).score_all(questions(two, "valid"))
    assert np.isfinite(calibration.probabilities(questions(two, "valid"), scores, np.zeros(scores.shape, bool))).all()


def test_without_valid_there_is_nothing_to_calibrate_on():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="has no valid triples to calibrate on"):
        calibrate(Cascade(Noisy(kg)), kg)


class TestOpenQuestions:
    """Questions that may have no further answer, as each of those that `predict --all` asks."""

    @staticmethod
    def answers(calibration, cascade, kg):
        """The probabilities of the best answers to every question of train, and whether test has them."""
        every = Queries.from_triples(kg.train).unique()[0].with_known(kg.known_before("test"))
        scores = cascade.score_all(every)
        is_known, is_gold = (known_mask(every, of, scores.shape) for of in (every.known, kg.known(("test",))))
        best = np.argsort(np.where(is_known, np.inf, -scores), axis=1)[:, :10]
        probabilities = calibration.probabilities(every, scores, is_known)
        return (np.take_along_axis(of, best, axis=1).ravel() for of in (probabilities, is_gold))

    @pytest.fixture(scope="class")
    @classmethod
    def sparse(cls):
        """Few facts are held out, so that most questions have no further answer."""
        full = graph()
        return replace(full, valid=full.valid[:40], test=full.test[:40])

    def test_their_probabilities_are_lower_and_nearer_to_the_truth(self, sparse):
        cascade = Cascade(Noisy(sparse, gain=1.0))
        usual = calibrate(cascade, sparse)
        both = replace(usual, open=calibrate_open(cascade, sparse))
        before, is_gold = self.answers(usual, cascade, sparse)
        after, _ = self.answers(both.for_open_questions(), cascade, sparse)
        assert after.mean() < 0.6 * before.mean()
        errors = [expected_calibration_error(each, is_gold) for each in (before, after)]
        assert errors[1] < 0.5 * errors[0]

    def test_where_pairs_are_read_fewer_questions_give_about_the_same(self, sparse):
        cascade = Cascade(Noisy(sparse, gain=1.0))
        usual = calibrate(cascade, sparse)
        curves = [calibrate_open(cascade, sparse, triples) for triples in (None, sparse.valid[:20])]
        few, all_ = (replace(usual, open=each).for_open_questions() for each in curves)
        means = [next(iter(self.answers(each, cascade, sparse))).mean() for each in (few, all_)]
        assert means[0] == pytest.approx(means[1], rel=0.5)

    def test_they_must_be_calibrated_first(self, kg):
        with pytest.raises(SettingsError, match="have yet to be calibrated"):
            calibrate(Cascade(Noisy(kg)), kg).for_open_questions()


class TestKeeping:
    def test_comes_back_as_it_was_beside_those_of_other_cascades(self, kg, tmp_path):
        first, second = calibrate(Cascade(Noisy(kg)), kg), calibrate(Cascade(Noisy(kg, seed=1)), kg)
        save_calibration(first, tmp_path, {"kge": "1"})
        save_calibration(second, tmp_path, {"kge": "2"})
        assert load_calibration(tmp_path, {"kge": "1"}) == first
        assert load_calibration(tmp_path, {"kge": "2"}) == second
        assert load_calibration(tmp_path, {"kge": "3"}) is None

    def test_another_format_is_refused(self, tmp_path):
        (tmp_path / "calibration.json").write_text('{"format": 9}')
        with pytest.raises(DataError, match="has format 9, expected 4"):
            load_calibration(tmp_path, {})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"weights": [1.0, 2.0]}, "calibration.head.weights .* expected at least 3 items"),
            ({"intercept": "low"}, "has calibrations.0.calibration.head.intercept 'low'; expected a valid number"),
            ({"sums": [0.0, 1.0]}, "the steps of a curve fall, or are not as many as its values"),
            (
                {"sums": [0.0], "values": [1.5]},
                "has calibrations.0.calibration.head.values.0 1.5; expected less than",
            ),
        ],
    )
    def test_one_with_the_right_sum_and_the_wrong_numbers_is_refused(self, kg, tmp_path, change, message):
        path = tmp_path / "calibration.json"
        save_calibration(calibrate(Cascade(Noisy(kg)), kg), tmp_path, {"kge": "1"})
        saved = json.loads(path.read_text())
        saved["calibrations"][0]["calibration"]["head"] |= change
        write_record(path, {name: value for name, value in saved.items() if name != "sha256"})
        with pytest.raises(DataError, match=f"calibration.json.*{message}.* Delete it to calibrate again"):
            load_calibration(tmp_path, {"kge": "1"})

    def test_one_that_was_edited_is_refused(self, kg, tmp_path):
        path = tmp_path / "calibration.json"
        save_calibration(calibrate(Cascade(Noisy(kg)), kg), tmp_path, {"kge": "1"})
        path.write_text(path.read_text().replace('"intercept": ', '"intercept": 1', 1))
        with pytest.raises(DataError, match="its content does not match the sha256 in it. Delete it to calibrate"):
            load_calibration(tmp_path, {"kge": "1"})

    def test_other_weights_and_pruners_make_another_cascade(self, kg):
        first = Noisy(kg)
        cascades = [
            Cascade(first),
            Cascade(first).then(first, alpha=0.5),
            Cascade(first).then(first, alpha=0.6),
            Cascade(first).then(first, alpha=0.6, keep=TopK(5)),
            Cascade(first).then(first, alpha=0.6, keep=TopK(6)),
        ]
        assert len({hash_of_cascade(cascade) for cascade in cascades}) == len(cascades)
        assert hash_of_cascade(cascades[1]) == hash_of_cascade(Cascade(first).then(first, alpha=0.5))
