"""Every result that is kept can be recomputed from its ranks, and says which graph it was made on."""

from pathlib import Path

import pytest

from cascader.datasets import CATALOG
from cascader.evaluation import Evaluation
from cascader.evaluation.tables import results_table

RESULTS = Path(__file__).parents[1] / "results"


def test_the_table_in_the_docs_is_the_one_that_the_results_give():
    assert results_table(RESULTS) in (RESULTS.parent / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_kept_result_follows_from_its_ranks(path):
    evaluation = Evaluation.load(path)
    assert evaluation.dataset == path.parent.name
    assert evaluation.name == path.stem
    counts = CATALOG[evaluation.dataset].counts
    if counts is not None:
        assert evaluation.metrics.queries == 2 * getattr(counts, evaluation.split)
