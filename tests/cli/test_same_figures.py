"""Python and the command line do the same: figures equal to the last digit, answers by name."""

import json

import numpy as np
import pytest

import cascader


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    rows = [f"drug {i}\ttreats\tdisease {j}" for i in range(8) for j in range(6) if (i * j) % 3]
    path = tmp_path_factory.mktemp("graph") / "drugs.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def in_python(graph, tmp_path_factory):
    settings = {"kge": {"dim": 4, "epochs": 3}, "kge2": {"dim": 4, "epochs": 3}}
    out = tmp_path_factory.mktemp("python") / "run"
    return cascader.fit(cascader.load_graph(graph), out, tiers="kge", model="complex,rotate", settings=settings)


@pytest.fixture
def on_the_command_line(graph, tmp_path, run):
    options = ["--tiers", "kge", "--model", "complex,rotate", "--set", "dim=4", "--set", "epochs=3"]
    options += ["--set", "kge2.dim=4", "--set", "kge2.epochs=3"]
    assert run("fit", graph, "--out", tmp_path / "run", *options)[0] == 0
    return tmp_path / "run"


def test_the_same_fit_gives_the_same_figures_to_the_last_digit(in_python, on_the_command_line, run):
    assert run("evaluate", on_the_command_line)[0] == 0
    written = json.loads((on_the_command_line / "results" / "cascade.json").read_text())
    evaluation = in_python.evaluate()
    assert written["mrr"] == evaluation.mrr
    ranks = cascader.Evaluation.load(on_the_command_line / "results" / "cascade.json").ranks.filtered.mean
    np.testing.assert_array_equal(ranks, evaluation.ranks.filtered.mean)


def test_a_cascade_built_by_hand_has_the_figures_of_the_run(in_python):
    kge, kge2 = (in_python.tier(name) for name in ("kge", "kge2"))
    tuned = cascader.tune(cascader.Cascade(kge, name="kge").then(kge2, name="kge2"), in_python.kg)
    assert cascader.evaluate(tuned.best, in_python.kg).mrr == in_python.evaluate().mrr


def test_the_same_question_gets_the_same_answers(in_python, on_the_command_line, run):
    code, out, _ = run("predict", on_the_command_line, "drug 1", "treats", "--format", "jsonl", "--top", 3)
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    answers = in_python.predict("drug 1", "treats", top=3)
    assert [(row["name"], row["score"], row["probability"]) for row in rows] == [
        (answer.name, answer.score, answer.probability) for answer in answers
    ]
