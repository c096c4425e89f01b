import pytest

from cascader.errors import DataError
from cascader.evaluation import evaluate
from cascader.evaluation.comparison import published_mrr, results_table
from cascader.models import Frequency


def test_a_table_has_the_paper_beside_ours_and_adds_up_the_trainings(toy, tmp_path):
    scorer = Frequency().fit(toy)
    second = {"seconds": 2.0, "preparing_seconds": 30.0}
    both = {"first": {"training": {"seconds": 10.2}}, "second": {"training": second}, "alpha": {"head": 0.5}}
    evaluate(scorer, toy, name="kge+kge-a-b", about=both).save(tmp_path / toy.name)
    evaluate(scorer, toy, name="frequency").save(tmp_path / toy.name)
    lines = results_table(tmp_path).splitlines()
    assert lines[0] == f"### {toy.name} (test)"
    assert lines[2] == "| result | MRR | the paper's | hits@1 | hits@3 | hits@10 | training |"
    assert any(line.startswith("| kge+kge-a-b | 0.") and line.endswith("| 42 s |") for line in lines)
    assert any(line.startswith("| frequency | 0.") and line.endswith("|  |") for line in lines)


def test_a_result_stands_beside_the_papers_row_of_its_kind():
    assert published_mrr("repodb", "kge-complex") == 0.4620
    assert published_mrr("repodb", "kge+dual-contrastive") == 0.4774
    assert published_mrr("codex-m", "kge-rotate") is None
    assert published_mrr("my-graph", "kge-complex") is None


def test_a_folder_without_results_is_said_so(tmp_path):
    with pytest.raises(DataError, match="has no results. Create some with: cascader evaluate RUN"):
        results_table(tmp_path)
