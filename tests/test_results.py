"""Every saved result can be recomputed from its ranks, and says which graph it was made on."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cascader.datasets import CATALOG
from cascader.evaluation import Evaluation
from cascader.evaluation.comparison import _published, results_table, summary_table

RESULTS = Path(__file__).parents[1] / "results"
#: A figure of an earlier result, and where it stands in the history: .1234 in `commit:path`.
EARLIER = re.compile(r"(\.\d{4}) in\s+`([0-9a-f]+:results/[^`]+\.json)`")


@pytest.fixture(autouse=True, scope="module")
def load():
    """Loads each evaluation once for all tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        loaded = cache(Evaluation.load)
        patch.setattr(Evaluation, "load", loaded)
        yield loaded


def test_the_table_in_the_docs_is_the_one_that_the_results_give():
    assert results_table(RESULTS) in (RESULTS.parent / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_summary_in_the_docs_is_the_one_that_the_results_give():
    assert summary_table(RESULTS) in (RESULTS.parent / "docs" / "results.md").read_text(encoding="utf-8")


def prose():
    text = (RESULTS.parent / "docs" / "results.md").read_text(encoding="utf-8")
    return re.sub(r"```.*?```|^\|.*?$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_every_figure_between_the_tables_is_one_of_a_kept_result(load):
    kept = {f"{load(path).mrr:.4f}"[1:] for path in RESULTS.glob("*/*.json")}
    named = re.findall(r"(?<!\d)\.\d{4}", EARLIER.sub("", prose()))
    assert named
    assert set(named) <= kept


def test_every_figure_of_the_readme_is_one_of_a_kept_result_or_published(load):
    ours = {f"{load(path).mrr:.4f}" for path in RESULTS.glob("*/*.json")}
    published = {f"{row[0]:.4f}" for rows in _published().values() for row in rows.values()}
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    (summary,) = re.findall(r"^\| dataset \|.*?\n\n", text, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"0\.\d{4}", summary)
    assert len(named) >= 8
    assert set(named) <= ours | published


@pytest.mark.parametrize(("figure", "place"), EARLIER.findall(prose()))
def test_a_figure_of_an_earlier_result_stands_in_the_history(figure, place):
    shown = subprocess.run(["git", "show", place], cwd=RESULTS.parent, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip("the history is not here")
    assert f"{json.loads(shown.stdout)['mrr']:.4f}"[1:] == figure


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_kept_result_follows_from_its_ranks(load, path):
    evaluation = load(path)
    assert evaluation.dataset == path.parent.name
    assert evaluation.name == path.stem
    counts = CATALOG[evaluation.dataset].counts
    if counts is not None:
        assert evaluation.metrics.queries == 2 * getattr(counts, evaluation.split)
