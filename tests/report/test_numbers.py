"""The numbers of a report: all of them there, all of them finite, and those that can be checked by hand right."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from cascader.cascade import Cascade, TopK
from cascader.evaluation import evaluate
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import KnowledgeGraph
from cascader.report import analyze, write_report
from cascader.report.inputs import ReportInputs
from cascader.report.sections import SECTIONS
from cascader.report.sections.diversity import _curve
from cascader.report.sections.reliability import _by_chance
from cascader.report.sections.results import main_table_section
from cascader.report.sections.weights import _by_rank, _margin, weights_section
from cascader.tuning import TuningResult, tune


def numbers_in(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)
    elif isinstance(value, int | float):
        yield value


class NewPruner:
    """A pruner that the report has never heard of."""

    kind = "brand_new"

    def __str__(self):
        return "brand_new, coverage 0.5"

    def keep(self, queries, scores):
        return TopK(3).keep(queries, scores)

    def as_dict(self):
        return {"pruner": "brand_new", "coverage": 0.5, "temperature": "hot"}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_analysis_is_there_and_finite(analyses, name):
    assert "skipped" not in analyses[name]
    found = list(numbers_in(analyses[name]))
    assert found
    assert all(math.isfinite(number) for number in found)


def test_the_numbers_are_json_and_the_same_every_time(analyses, material):
    assert json.loads(json.dumps(analyses, allow_nan=False)) == analyses
    assert analyze(**material) == analyses


def test_nothing_is_read_that_tuning_has_not_read(material):
    stored = material["scorers"]["cross"]
    before = stored.pairs_computed
    analyze(**material)
    assert stored.pairs_computed == before > 0


def test_the_main_table_has_all_evaluations_test_first_with_calls_and_seconds(analyses):
    rows = analyses["main_table"]["rows"]
    assert [row["split"] for row in rows] == ["test", "test", "valid"]
    assert {row["name"] for row in rows} == {"kge-complex", "cascade", "frequency"}
    costs = next(row["costs"] for row in rows if row["name"] == "cascade")
    assert costs["kge"]["calls"] > 0
    assert costs["kge"]["seconds"] > 0


def test_the_papers_figure_stands_beside_test_figures_only(material):
    kg = replace(material["kg"], name="codex-s")
    scorer = material["scorers"]["kge"]
    found = [evaluate(scorer, kg, split, name="kge-complex") for split in ("valid", "test")]
    rows = analyze(**{**material, "evaluations": found})["main_table"]["rows"]
    assert {row["split"]: row["published_mrr"] for row in rows} == {"test": 0.4646, "valid": None}


def test_the_envelope_rises_and_ends_with_the_best(analyses, material):
    for cost, points in analyses["pareto"]["envelope"].items():
        figures = [point["valid_mrr"] for point in points]
        assert figures == sorted(set(figures))
        assert [point[cost] for point in points] == sorted(point[cost] for point in points)
        assert figures[-1] == pytest.approx(max(trial.mrr for trial in material["tuned"].trials), abs=1e-6)


def test_all_kinds_of_pruners_are_points(analyses):
    points = analyses["pareto"]["points"]
    assert {point["kind"] for point in points} == {"everyone", "top_k", "static", "dynamic", "conformal", "budgeted"}
    assert {tuple(point["tiers"]) for point in points} >= {("kge",), ("kge", "frequency"), ("kge", "cross")}


def test_a_larger_budget_is_never_worse_and_never_exceeded(analyses):
    rows = analyses["budgets"]["rows"]
    assert [row["budget"] for row in rows] == [0, 1, 2, 5, 10, 20, 50, 100]
    assert all(row["pairs_per_query"] <= row["budget"] for row in rows)
    figures = [row["valid_mrr"] for row in rows]
    assert figures == sorted(figures)


def test_the_tuned_weights_give_the_figure_that_tuning_found(analyses, material):
    found = analyses["weights"]
    whole = ReportInputs(**material, seed=0)
    best = whole.best_joined().cascade
    expected = mean_reciprocal_rank(best, whole.queries, whole.filter)
    assert found["rows"][found["best"]]["tuned"] == pytest.approx(expected, abs=1e-6)
    assert found["later"] == "cross"


@pytest.mark.parametrize(("name", "alpha"), [("equal", 0.5), ("later_alone", 0.0)])
def test_other_weights_give_what_a_cascade_with_them_gives(analyses, material, name, alpha):
    whole = ReportInputs(**material, seed=0)
    cascade = whole.best_joined().cascade
    last = cascade.tiers[-1]
    changed = Cascade(cascade.first, cascade.tiers[:-1])
    changed = changed.then(last.scorer, alpha=alpha, keep=last.keep, fusion=last.fusion)
    found = analyses["weights"]
    figure = mean_reciprocal_rank(changed, whole.queries, whole.filter)
    assert found["rows"][found["best"]][name] == pytest.approx(figure, abs=1e-6)


@pytest.mark.parametrize(
    ("equal", "beside"), [(0.4, "0.1000 lower"), (0.6, "0.1000 higher"), (0.5, "the same"), (0.50004, "the same")]
)
def test_other_weights_are_said_to_be_lower_higher_or_the_same(analyses, equal, beside):
    numbers = analyses["weights"]
    best = {**numbers["rows"][numbers["best"]], "tuned": 0.5, "equal": equal}
    (text,) = weights_section({**numbers, "rows": [best], "best": 0}).text
    assert f"is 0.5000 with the tuned alpha, {equal:.4f} ({beside}) if both count the same" in text


def test_the_papers_figures_are_a_column_only_for_graphs_that_it_has(analyses):
    numbers = analyses["main_table"]
    published = {**numbers, "rows": [{**row, "published_mrr": 0.4646} for row in numbers["rows"]]}
    columns = [main_table_section(each).tables[0].columns for each in (numbers, published)]
    assert ["the paper's" in each for each in columns] == [False, True]


def test_a_margin_is_the_golds_score_less_the_mean_of_the_wrong_candidates():
    scores = np.array([5.0, 1.0, 3.0, 9.0, 7.0])
    is_scored = np.array([True, True, True, True, False])
    assert _margin(scores, is_scored, gold=0, known=np.array([0, 3])) == 5 - (1 + 3) / 2
    assert _margin(scores, is_scored, gold=4, known=np.array([4])) is None
    assert _margin(scores, is_scored, gold=0, known=np.array([0, 1, 2, 3])) is None


def test_margins_are_grouped_by_the_golds_rank():
    ranks, margins = np.array([1.0, 1.0, 3.0, 200.0]), np.array([4.0, 2.0, 1.0, -1.0])
    found = _by_rank(ranks, margins)
    assert [(group["ranks"], group["golds"]) for group in found["groups"]] == [("1", 2), ("2–3", 1), ("101+", 1)]
    assert found["groups"][0]["mean"] == pytest.approx(3 / margins.std())
    assert found["with_rank"] == pytest.approx(np.corrcoef(margins, ranks)[0, 1])


def test_tiers_that_were_measured_alone_are_compared_on_those_queries(material):
    scorers, kg = material["scorers"], material["kg"]
    models = {name: {"model": name, "settings": {"dim": 1, "newer": 2}} for name in ("kge", "frequency")}
    told = {name: {"model": name, "settings": {"dim": 1}} for name in models}
    found = [evaluate(scorers[name], kg, name=name, about=told[name]) for name in models]
    pairs = analyze(**{**material, "evaluations": found, "models": models})["correlations"]["pairs"]
    first = next(pair for pair in pairs if pair["tiers"] == ["kge", "frequency"])
    ranks = [evaluation.ranks.filtered.mean for evaluation in found]
    assert first["where"] == "test, all queries"
    assert first["ranks"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-5)
    assert first["log_ranks"] == pytest.approx(np.corrcoef(*np.log(ranks))[0, 1], abs=1e-5)


def test_a_tier_that_reads_is_compared_among_what_it_has_read(analyses, material):
    pairs = {tuple(pair["tiers"]): pair for pair in analyses["correlations"]["pairs"]}
    queries = len(ReportInputs(**material, seed=0).queries)
    assert pairs["kge", "frequency"]["queries"] == queries
    assert 0 < pairs["kge", "cross"]["queries"] < queries
    assert "that were read" in pairs["kge", "cross"]["where"]


def test_distributions_fall_from_one_to_nought_with_the_gold_on_the_line(analyses):
    for question in analyses["distributions"]["questions"]:
        for tier in question["tiers"]:
            assert tier["scores"] == sorted(tier["scores"], reverse=True)
            assert (tier["scores"][0], tier["scores"][-1]) == (1, 0)
            if tier["gold_place"] in tier["places"]:
                assert tier["gold_score"] == tier["scores"][tier["places"].index(tier["gold_place"])]


def test_a_question_of_which_nothing_is_left_has_an_empty_curve():
    assert _curve(np.array([-np.inf, -np.inf]), gold=1)["candidates"] == 0


def test_a_higher_target_keeps_more(analyses):
    for kind in ("static", "dynamic"):
        rows = [row for row in analyses["coverage"]["rows"] if row["kind"] == kind]
        shares = [row["coverage"] for row in sorted(rows, key=lambda row: row["target"])]
        assert len(shares) == 4
        assert shares == sorted(shares)


def test_chance_alone_leaves_most_conformal_shares_within_its_limits():
    rng, (count, calibrated, target) = np.random.default_rng(0), (200, 99, 0.8)
    low, high = _by_chance(target, count, calibrated)
    limits = np.sort(rng.random((2000, calibrated)), axis=1)[:, 79]  # the 80th of 99
    shares = (rng.random((2000, count)) <= limits[:, None]).mean(axis=1)
    assert 0.93 < ((shares >= low) & (shares <= high)).mean() < 0.97
    assert _by_chance(0.95, count, calibrated=4) == (1.0, 1.0)


def test_the_reliability_is_that_of_the_calibration_with_every_answer_in_a_bin(analyses, material):
    found, seen = analyses["reliability"], material["calibration"].reliability
    assert found["error_after"] == pytest.approx(seen.error_after, abs=1e-6)
    assert found["error_before"] == pytest.approx(seen.error_before, abs=1e-6)
    for way in ("before", "after"):
        assert sum(each["answers"] for each in found[way]) == found["answers"] == seen.answers
        assert sum(each["golds"] for each in found[way]) == found["golds"] == seen.golds
        predicted = [each["predicted"] for each in found[way]]
        assert predicted == sorted(predicted)
        assert all(each["interval"][0] <= each["found"] <= each["interval"][1] for each in found[way])


def test_without_probabilities_their_reliability_is_skipped(material):
    found = analyze(**{**material, "calibration": None})
    assert "no probabilities" in found["reliability"]["skipped"]


def test_slices_are_those_of_the_cascade_by_name(analyses, kg):
    found = analyses["slices"]
    assert found["evaluation"] == "cascade"
    assert {row["label"] for row in found["ways"]["relation"]} == {relation.name for relation in kg.relations}
    assert sum(row["queries"] for row in found["ways"]["side"]) == 2 * len(kg.test)


def test_one_tier_leaves_out_what_needs_two_and_says_why(material):
    kg, kge = material["kg"], material["scorers"]["kge"]
    found = analyze(kg, {"kge": kge}, TuningResult(material["tuned"].trials[:1]), [], {})
    skipped = {name: found[name]["skipped"] for name in SECTIONS if "skipped" in found[name]}
    assert "only one tier" in skipped["correlations"]
    assert "only one tier" in skipped["pareto"]
    assert "cascader evaluate" in skipped["main_table"]
    assert "distributions" not in skipped


def test_tiers_that_score_everyone_are_weighed_too(material):
    kg, scorers = material["kg"], {name: material["scorers"][name] for name in ("kge", "frequency")}
    tuned = TuningResult(tuple(trial for trial in material["tuned"].trials if "cross" not in trial.tiers))
    found = analyze(kg, scorers, tuned, [], {})
    assert found["weights"]["later"] == "frequency"
    assert "No tier of this run reads pairs" in found["budgets"]["skipped"]
    assert "skipped" not in found["margins"]


def test_without_valid_what_needs_it_is_skipped(material):
    kg = material["kg"]
    none = KnowledgeGraph("none", kg.entities, kg.relations, kg.train, kg.valid[:0], kg.test)
    found = analyze(none, material["scorers"], None, material["evaluations"], material["models"])
    assert {name for name in SECTIONS if "skipped" not in found[name]} == {"main_table", "tiers", "slices"}
    assert "no valid triples" in found["pareto"]["skipped"]


def test_a_single_valid_triple_is_enough(material):
    kg = material["kg"]
    small = KnowledgeGraph("small", kg.entities, kg.relations, kg.train, kg.valid[:1], kg.test)
    scorers = {name: material["scorers"][name] for name in ("kge", "frequency")}
    tuned = tune(material["tuned"].trials[1].cascade, small)
    assert set(SECTIONS) <= set(analyze(small, scorers, tuned, [], {}))


def test_a_pruner_that_the_report_has_never_heard_of_is_one_more_line(material, tmp_path):
    trials = list(material["tuned"].trials)
    last = max(range(len(trials)), key=lambda place: trials[place].mrr if "cross" in trials[place].tiers else -1)
    *earlier, tier = trials[last].cascade.tiers
    cascade = Cascade(trials[last].cascade.first, (*earlier, replace(tier, keep=NewPruner())), name="kge")
    trials[last] = replace(trials[last], cascade=cascade, mrr=1.0, p_value=0.01)
    found = analyze(**{**material, "tuned": TuningResult(tuple(trials))})
    assert found["budgets"]["rows"][-1]["pruner"] == "brand_new, coverage 0.5"
    assert "brand_new" in {row["kind"] for row in found["coverage"]["rows"]}
    page = write_report(tmp_path, found).read_text(encoding="utf-8")
    assert page.count(">brand new<") > 1
