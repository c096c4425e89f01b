"""The whole protocol on a tiny graph: every row once, frozen by valid before test is read, wherever it is stopped."""

import contextlib
import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

import cascader
from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.records import write_record
from cascader.runs.planner import MeasuredCosts
from cascader.runs.reproduction import reproduction_request
from cascader.runs.reproduction_plan import Estimate, ReproductionPlan, plan_reproduction
from cascader.runs.run import Run

ROWS = {
    "kge-complex",
    "kge-rotate",
    "kge-rescal",
    "kge-transe",
    "dual-star",
    "cross-kg-bert",
    "cascader-paper",
    "plausibility",
    "rules",
    "similarity",
    "dual-contrastive",
    "dual-context",
    "late",
    "structure-plain",
    "structure",
    "earlier",
    "cascade-plain",
    "cascade",
}
TEXT_ROWS = {"dual-star", "cross-kg-bert", "cascader-paper", "dual-contrastive", "dual-context", "late", "earlier"}
TEXT_ROWS |= {"cascade-plain", "cascade"}


@pytest.fixture(autouse=True, scope="module")
def costs_are_measured_in_a_moment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascader.models.training._SECONDS_TIMED", 0.02)
        yield


@pytest.fixture(scope="module")
def kg():
    """A graph with names that a language model can read."""
    draw = np.random.default_rng(0)
    facts = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefgh" for b in "uvwxyz" if draw.random() < 0.8]
    facts = [facts[i] for i in draw.permutation(len(facts))]
    return KnowledgeGraph.from_triples(facts[10:], valid=facts[5:10], test=facts[:5], name="likes")


@pytest.fixture(scope="module")
def settings(tiny_model):
    embedding = {"dim": 4, "epochs": 2}
    dual = {"base": tiny_model, "epochs": 2, "dim": 4}
    cross = {"base": tiny_model, "split_layer": 0, "rounds": 2, "queries_per_round": 8, "valid_top_k": 3}
    cross["precision"] = "float32"  # an export to eight bits would take longer than everything else
    tiers = dict.fromkeys(("kge", "kge2", "kge3", "kge4"), embedding)
    others = {"dual3": {**dual, "neighbors": 2, "batch_size": 8}, "late": {**dual, "layer": 1}}
    return {**tiers, "dual": dual, "dual2": dual, **others, "cross": cross, "cross2": cross}


@pytest.fixture(scope="module")
def reproduce(kg, settings):
    def reproduce(folder, **changes):
        return cascader.reproduce(kg, folder, **{"preset": "quick", "settings": settings, **changes})

    return reproduce


@pytest.fixture(scope="module")
def whole(reproduce, tmp_path_factory):
    """A reproduction that nothing has disturbed."""
    return reproduce(tmp_path_factory.mktemp("whole") / "likes")


@pytest.fixture
def copied(whole, tmp_path):
    """The same folder for one test, which may change it."""
    return shutil.copytree(whole.folder, tmp_path / "likes")


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def ranks(folder):
    return {path.name: path.read_bytes() for path in (folder / "results").glob("*.ranks.parquet")}


def test_every_row_is_measured_and_named_as_in_results(whole):
    names = set(whole.evaluations)
    assert names > ROWS
    ensembles = {name.partition("-")[0]: name for name in names - ROWS}
    assert set(ensembles) == {"kge+kge", "kge+dual", "kge+cross"}
    assert ensembles["kge+dual"].endswith("-star")
    assert ensembles["kge+cross"].endswith("-kg-bert")
    assert not whole.left_out
    for name in names:
        assert (whole.folder / "results" / f"{name}.json").exists()
        assert (whole.folder / "results" / f"{name}.ranks.parquet").exists()


def test_the_ensembles_have_the_best_embeddings_on_valid(whole):
    run = cascader.load_run(whole.folder)
    valid = {tier: run.tiers[tier].history_.best_valid for tier in ("kge", "kge2", "kge3", "kge4")}
    best, second = sorted(valid, key=lambda tier: -valid[tier])[:2]
    (both,) = (name for name in whole.evaluations if name.startswith("kge+kge"))
    assert set(both.split("-")[1:]) == {run.tiers[best].name, run.tiers[second].name}
    (dual,) = (name for name in whole.evaluations if name.startswith("kge+dual"))
    assert dual == f"kge+dual-{run.tiers[best].name}-star"


def test_the_figures_are_those_of_evaluate(whole):
    run = cascader.load_run(whole.folder)
    choices = json.loads((whole.folder / "choice.json").read_text())["rows"]
    assert set(choices) == set(whole.evaluations)
    for name, choice in choices.items():
        again = run.evaluate(tiers=choice["tiers"], weights=choice["weights"], top=choice["top"])
        np.testing.assert_array_equal(again.ranks.filtered.mean, whole[name].ranks.filtered.mean)
    assert run.evaluate().mrr == whole["cascade"].mrr


def test_the_paper_s_language_models_are_no_part_of_our_cascade(whole):
    run = cascader.load_run(whole.folder)
    assert {"dual2", "cross2"} & set(run.cascade_tiers) == set()
    assert run.tiers["dual2"].settings.objective == "star"
    assert run.tiers["cross2"].settings.objective == "kg-bert"


def test_each_result_keeps_the_command_that_made_it(whole):
    (command,) = {evaluation.command for evaluation in whole.evaluations.values()}
    assert command.startswith("cascader reproduce likes --preset quick --set kge.dim=4")
    assert command.endswith(f"--seed 0 --out {whole.folder}")
    assert cascader.Evaluation.load(whole.folder / "results" / "rules.json").command == command


def test_the_choice_is_written_down_before_test_is_read(whole):
    kinds = [event["kind"] for event in events(whole.folder)]
    assert kinds.count("chosen") == 1
    assert kinds.index("chosen") < kinds.index("reading")
    assert kinds.count("reading") == len(whole.evaluations)


def test_the_table_stands_in_reproduction_json_beside_the_report(whole):
    saved = json.loads((whole.folder / "reproduction.json").read_text())
    assert {row["name"]: row["mrr"] for row in saved["rows"]} == {
        name: evaluation.mrr for name, evaluation in whole.evaluations.items()
    }
    assert saved["is_finished"]
    assert whole.report == whole.folder / "report" / "report.html"
    assert "cascader-paper" in whole.report.read_text()
    (again,) = (row["again"] for row in saved["rows"] if row["name"] == "structure")
    assert again.startswith(f"cascader evaluate {whole.folder} --tiers plausibility,rules,similarity,kge")


def test_what_was_measured_is_not_read_again(copied, reproduce, whole, monkeypatch):
    monkeypatch.setattr(Run, "evaluate", None)
    again = reproduce(copied)
    assert {name: found.mrr for name, found in again.evaluations.items()} == {
        name: found.mrr for name, found in whole.evaluations.items()
    }


def test_a_row_that_is_lost_is_read_once_more_and_no_other(copied, reproduce, whole):
    (copied / "results" / "structure.json").unlink()
    before = len(events(copied))
    reproduce(copied)
    read = [event["text"] for event in events(copied)[before:] if event["kind"] == "reading"]
    assert read == ["Reading test for structure."]
    reads = json.loads((copied / "reproduction.json").read_text())["test_reads"]
    assert reads == {**dict.fromkeys(whole.evaluations, 1), "structure": 2}
    assert ranks(copied) == ranks(whole.folder)


class Stopped(Exception):
    """Something happened in the middle."""


@pytest.mark.slow
def test_stopped_at_random_events_it_ends_with_the_same_rows_and_reads_none_that_it_has(
    reproduce, whole, tmp_path, random_seed
):
    moments = random.Random(random_seed).sample(range(1, len(events(whole.folder))), 3)
    heard = []

    def stop_at(event):
        heard.append((event.kind, event.text.partition(":")[0].removesuffix(".").split()[-1]))
        if len(heard) in moments:
            raise Stopped

    for _ in range(len(moments) + 1):
        with contextlib.suppress(Stopped):
            reproduce(tmp_path / "likes", on_event=stop_at)
    measured = [name for kind, name in heard if kind == "measured"]
    assert sorted(measured) == sorted(whole.evaluations)
    for name in measured:
        assert ("reading", name) not in heard[heard.index(("measured", name)) :]
    assert ranks(tmp_path / "likes") == ranks(whole.folder)


class TestLimitedTime:
    """`max_hours`: what does not fit is out of time, as in the paper's tables."""

    def test_where_nothing_fits_every_row_is_out_of_time_with_a_reason(self, reproduce, tmp_path):
        found = reproduce(tmp_path / "likes", max_hours=1e-6)
        assert not found.evaluations
        assert {why.status for why in found.left_out.values()} == {"OOT"}
        assert "would take" in found.left_out["rules"].reason
        saved = json.loads((tmp_path / "likes" / "reproduction.json").read_text())
        assert {row["status"] for row in saved["rows"]} == {"OOT"}
        assert all(row["reason"] for row in saved["rows"])

    @pytest.mark.slow
    def test_a_training_that_does_not_fit_takes_its_rows_with_it(self, reproduce, tmp_path, monkeypatch):
        measure = MeasuredCosts.of

        def slow_to_train(self, tier, preset):
            cost = measure(self, tier, preset)
            return replace(cost, epoch=1e6) if tier.startswith("cross") else cost

        monkeypatch.setattr(MeasuredCosts, "of", slow_to_train)
        found = reproduce(tmp_path / "likes", max_hours=1)
        assert set(found.left_out) == {
            "cross-kg-bert",
            "kge+cross-kg-bert",
            "cascader-paper",
            "cascade-plain",
            "cascade",
        }
        assert found.left_out["cascade"].reason.startswith("it needs the tier cross: with it, training and measuring")
        assert "earlier" in found.evaluations
        assert not (tmp_path / "likes" / "tiers" / "cross").exists()

    def test_no_row_may_take_more_than_a_day(self, kg, settings, monkeypatch):
        measure = MeasuredCosts.answering

        def slow_to_read(self, tier, questions, top):
            return measure(self, tier, questions, top) + (1e6 if tier == "cross2" else 0)

        monkeypatch.setattr(MeasuredCosts, "answering", slow_to_read)
        request = reproduction_request(kg, preset="quick", settings=settings)
        plan, _ = plan_reproduction(request.fit, request.absent)
        assert plan.rows_left_out["cross-kg-bert"].status == "OOT"
        assert plan.rows_left_out["cross-kg-bert"].reason.endswith("and no row may take more than 24 h")

    def test_a_plan_has_likely_and_latest_times_for_each_training_and_row(self, kg, settings):
        request = reproduction_request(kg, preset="quick", settings=settings)
        plan, fit_plan = plan_reproduction(request.fit, request.absent)
        assert list(plan.tiers) == list(fit_plan.tiers) == list(request.fit.kinds)
        assert len(plan.rows) == len(ROWS) + 3
        assert all(0 <= each.likely <= each.latest for each in (*plan.tiers.values(), *plan.rows.values()))

    def test_a_row_that_takes_hardly_any_time_is_measured_even_if_the_time_is_up(self):
        plan = ReproductionPlan({}, {"rules": Estimate(1, 1), "cascade": Estimate(100, 200)})
        assert plan.has_time("rules", spent=1200, budget=1000)
        assert not plan.has_time("cascade", spent=950, budget=1000)
        assert plan.has_time("cascade", spent=800, budget=1000)

    @pytest.mark.parametrize("hours", [0, -1, float("nan")])
    def test_hours_must_be_more_than_none(self, reproduce, tmp_path, hours):
        with pytest.raises(SettingsError, match=r"max_hours is .*, expected more than 0 hours"):
            reproduce(tmp_path / "likes", max_hours=hours)


def test_without_texts_the_rows_that_read_them_are_left_out(tmp_path):
    facts = [(f"Q{i}", "P1", f"Q{j}") for i in range(6) for j in range(6)]
    kg = KnowledgeGraph.from_triples(facts[:28], valid=facts[28:32], test=facts[32:])
    small = dict.fromkeys(("kge", "kge2", "kge3", "kge4"), {"dim": 4, "epochs": 2})
    found = cascader.reproduce(kg, tmp_path / "silent", preset="quick", settings=small)
    assert set(found.left_out) == {*TEXT_ROWS, "kge+dual-star", "kge+cross-kg-bert"}
    assert {why.status for why in found.left_out.values()} == {"left out"}
    assert "the graph has no texts for a language model to read" in found.left_out["cascade"].reason
    assert "structure" in found.evaluations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "best"}, "preset 'quick', while this one has 'best'"),
        ({"max_hours": 3.0}, "max_hours None, while this one has 3.0"),
        ({"settings": {"kge": {"dim": 5}}}, "settings.kge.dim 4, while this one has 5"),
    ],
)
def test_another_reproduction_in_the_same_folder_is_refused(reproduce, whole, changes, message):
    with pytest.raises(SettingsError, match="holds another reproduction: it was started with") as refused:
        reproduce(whole.folder, **changes)
    assert message in str(refused.value)
    assert "or go on with the one there: cascader reproduce likes --preset quick" in str(refused.value)


def test_a_folder_with_anything_else_is_refused(reproduce, whole, tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(SettingsError, match="holds other files, such as thesis.txt, but no reproduction"):
        reproduce(tmp_path)
    cascader.load_run(whole.folder).save(tmp_path / "run")
    (tmp_path / "run" / "reproduction.json").unlink()
    with pytest.raises(SettingsError, match="holds a run, but no reproduction. Choose a new folder with --out"):
        reproduce(tmp_path / "run")


@pytest.mark.parametrize("file", ["choice.json", "tuning.json"])
def test_a_choice_that_was_changed_afterwards_is_refused(copied, reproduce, file):
    path = copied / file
    path.write_text(path.read_text().replace('"top": 100', '"top": 5').replace('"valid_mrr": ', '"valid_mrr": 1'))
    with pytest.raises(DataError, match=r"choice\.json (is not as it was written|says what valid chose)"):
        reproduce(copied)


def changed(path, change):
    """Write a file anew, with a sum that is right: as a stranger would."""
    saved = json.loads(path.read_text())
    del saved["sha256"]
    change(saved)
    write_record(path, saved)


ROW = "structure"


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("reproduction.json", lambda saved: saved.pop("command"), "has no command"),
        ("reproduction.json", lambda saved: saved.update(request=[1]), "has request [1]; expected"),
        ("reproduction.json", lambda saved: saved.update(plan=3), "has plan 3; expected"),
        ("reproduction.json", lambda saved: saved.update(training_seconds="x"), "has training_seconds 'x'; expected"),
        ("reproduction.json", lambda saved: saved.update(training_seconds=-1e9), "expected greater than or equal to 0"),
        ("reproduction.json", lambda saved: saved.update(seconds=[1]), "has seconds [1]; expected"),
        ("reproduction.json", lambda saved: saved.update(left_out={"a": {"status": "lost"}}), "has left_out.a.status"),
        ("reproduction.json", lambda saved: saved["plan"]["rows"].update(a={"likely": 1}), "has no plan.rows.a.latest"),
        ("choice.json", lambda saved: saved.update(rows=[1]), "has rows [1]; expected"),
        ("choice.json", lambda saved: saved["rows"].update(a=saved["rows"][ROW]), "has a row 'a', which this"),
        ("choice.json", lambda saved: saved["rows"][ROW].pop("tiers"), f"has no rows.{ROW}.tiers"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(tiers=["../../x"]), "'../../x'; expected a tier name"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(file=3), f"has rows.{ROW}.file 3; expected"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(file="../x.json"), "expected a file of a choice"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(file="a\0b"), "expected a file of a choice"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(file="parts/a"), "expected a file of a choice"),
        ("choice.json", lambda saved: saved["rows"][ROW].update(sha256="x"), "expected a sha256"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_a_sentence(copied, reproduce, monkeypatch, file, change, said):
    monkeypatch.setattr(Run, "evaluate", None)
    changed(copied / file, change)
    with pytest.raises(DataError) as refused:
        reproduce(copied)
    assert f"{file} has " in str(refused.value) and said in str(refused.value)
    assert str(refused.value).endswith("Restore it, or reproduce again in another folder.")


def test_a_graph_without_a_test_split_is_refused(tmp_path):
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], valid=[("b", "r", "a")], name="half")
    with pytest.raises(DataError, match="half has no test triples, but a reproduction trains on train"):
        cascader.reproduce(kg, tmp_path / "half")
