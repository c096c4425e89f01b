from dataclasses import replace

import pytest

from cascader.errors import DataError
from cascader.evaluation import evaluate
from cascader.evaluation.comparison import published_mrr, results_table, summary_table
from cascader.models import Frequency


def test_a_table_adds_up_the_trainings_and_has_no_column_for_a_paper_without_figures(toy, tmp_path):
    scorer = Frequency().fit(toy)
    second = {"seconds": 2.0, "preparing_seconds": 30.0}
    both = {"first": {"training": {"seconds": 10.2}}, "second": {"training": second}, "alpha": {"head": 0.5}}
    evaluate(scorer, toy, name="kge+kge-a-b", about=both).save(tmp_path / toy.name)
    evaluate(scorer, toy, name="frequency").save(tmp_path / toy.name)
    lines = results_table(tmp_path).splitlines()
    assert lines[0] == f"### {toy.name} (test)"
    assert lines[2] == "| result | MRR | hits@1 | hits@3 | hits@10 | training |"
    assert any(line.startswith("| kge+kge-a-b | 0.") and line.endswith("| 42 s |") for line in lines)
    assert any(line.startswith("| frequency | 0.") and line.endswith("|  |") for line in lines)


def test_a_table_has_the_papers_figures_beside_ours(toy, tmp_path):
    replace(evaluate(Frequency().fit(toy), toy, name="kge-complex"), dataset="repodb").save(tmp_path / "repodb")
    _, _, header, _, row = results_table(tmp_path).splitlines()
    assert header.startswith("| result | MRR | the paper's |")
    assert row.split(" | ")[2] == "0.4620"


def test_a_result_stands_beside_the_papers_row_of_its_kind():
    assert published_mrr("repodb", "kge-complex") == 0.4620
    assert published_mrr("repodb", "kge+dual-contrastive") == 0.4774
    assert published_mrr("codex-m", "kge-rotate") is None
    assert published_mrr("my-graph", "kge-complex") is None


def test_a_folder_without_results_is_said_so(tmp_path):
    with pytest.raises(DataError, match="has no results. Create some with: cascader evaluate RUN"):
        results_table(tmp_path)


@pytest.mark.parametrize("table", [results_table, summary_table])
def test_a_folder_that_is_not_there_is_called_that(table, tmp_path):
    with pytest.raises(DataError, match="there is no folder .*nowhere"):
        table(tmp_path / "nowhere")


def test_a_summary_has_a_row_for_each_graph_with_intervals_seeds_and_a_paired_test(toy, tmp_path):
    first, second = (evaluate(Frequency().fit(toy), toy, name=name) for name in ("structure", "cascade"))
    second = replace(second, seconds=388.3, peak_memory_bytes=2_094_000_000)
    for evaluation in (first, second, replace(second, name="cascade-seed-1")):
        evaluation.save(tmp_path / toy.name)
    columns, _, row = summary_table(tmp_path).splitlines()
    cells = dict(zip(columns.split(" | "), row.split(" | "), strict=True))
    low, high = first.intervals["mrr"]
    assert cells["without a language model"] == f"{first.mrr:.4f} [{low:.4f}, {high:.4f}]"
    assert cells["our cascade"].endswith(f"]; other seeds: {second.mrr:.4f}")
    assert cells["gain of the language models"] == "+0.0000 (p = 1.0000)"
    assert cells["without the prior"] == ""
    assert cells["time to answer test, memory"] == "6 min 29 s, 2.1 GB"
    assert cells["the paper's time, on a GPU |"] == " |"  # it does not have this graph


def test_a_summary_has_the_paper_s_time_for_a_graph_of_the_paper(toy, tmp_path):
    evaluate(Frequency().fit(toy), toy, name="structure").save(tmp_path / "wn18rr")
    assert summary_table(tmp_path).splitlines()[-1].endswith(" | 3 h 30 min |")


def test_a_folder_without_anything_to_summarize_is_said_so(tmp_path):
    with pytest.raises(DataError, match="has no result called structure"):
        summary_table(tmp_path)
