"""`cascader demo`, all of it: on a part of its graph, with a tiny language model in the place of the real one."""

import json
import re

import pytest

from cascader import load_run
from cascader.models import settings

#: All of it can be read again on a terminal of the smallest usual size.
COLUMNS, LINES, SCREENS = 80, 24, 3


@pytest.fixture
def quick_presets(tiny_model, monkeypatch):
    """The preset that the demo trains with, cut short."""
    short = {
        "complex": {"dim": 20, "batch_size": 50, "epochs": 15, "learning_rate": 0.1},
        "dual": {"base": tiny_model, "epochs": 1},
        "late": {"base": tiny_model, "epochs": 1, "layer": 1},
        "cross": {
            "base": tiny_model,
            "split_layer": 0,
            "rounds": 1,
            "queries_per_round": 16,
            "valid_triples": 5,
            "valid_top_k": 3,
        },
    }
    table = {"any": {model: {"quick": quick} for model, quick in short.items()}}
    monkeypatch.setattr(settings, "read_presets", lambda: table)


@pytest.mark.slow
def test_demo_runs_and_says_what_it_did(run, tmp_path, small_wordnet, quick_presets):
    code, out, _ = run("demo", "--out", tmp_path)
    assert code == 0
    kg = small_wordnet
    counts = (len(kg.entities), len(kg.relations), len(kg.train), len(kg.valid), len(kg.test))
    for sentence in (
        "1. A graph of places from WordNet: {:,} entities, {} relations, {:,} triples to learn from, {:,} to choose "
        "on, {:,} to be tested on.".format(*counts),
        "2. Fitting all tiers, from rules to language models, and tuning their cascade on valid: cascader fit wordnet",
        "3. Asking for the head and the tail of each test triple, and ranking all entities: cascader evaluate",
        "4. The report, with every figure and chart: cascader report",
        "a question of test, answered with the reasons: cascader predict --known --why",
        f'Ask your own: cascader predict {tmp_path} Germany "has the part" --why',
    ):
        assert out_of_white_space(sentence) in out_of_white_space(out)  # the terminal is narrow, and may break a path
    results = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")}
    assert {each["command"] for each in results.values()} == {f"cascader demo --out {tmp_path}"}
    figures = {name: each["mrr"] for name, each in results.items()}
    assert figures.keys() == {"frequency", "rules", "kge", "structure", "dual", "cascade"}
    assert all(f"{mrr:.4f}" in out for mrr in figures.values())
    assert figures["structure"] > figures["frequency"]
    assert sum(-(-max(len(line), 1) // COLUMNS) for line in out.splitlines()) <= SCREENS * LINES
    assert "Trained dual for 1 epoch" in out
    assert not [told for told in ("Training dual", "Weighed on valid") if told in out]  # a newcomer need not know
    assert out_of_white_space(out).endswith(out_of_white_space(last_reason(out, tmp_path)))
    assert (tmp_path / "report" / "report.html").exists()


def last_reason(out, folder):
    """The words of the third reason for the first answer to the question that was asked, or of the last one."""
    anchor, relation = re.findall(r"^\((.+), (.+), \?\)$", out, re.MULTILINE)[-1]
    reason = load_run(folder).predict(anchor, relation, with_known=True)[0].reasons[:3][-1]
    facts = f" ({'; '.join(reason.untold())})" if reason.untold() else ""
    return f"   {reason.in_words()}{facts}"


def out_of_white_space(text):
    return "".join(text.split())
