"""`cascader baseline` and `cascader compare`."""

import json


def test_baseline_writes_an_evaluation_and_compare_reads_two(run, triples, tmp_path):
    for out in ("one", "two"):
        code, printed, _ = run("baseline", triples, "--out", tmp_path / out)
        assert code == 0
        assert "mrr" in printed
    first, second = (tmp_path / out / "friends" / "frequency.json" for out in ("one", "two"))
    code, printed, _ = run("compare", first, second)
    assert code == 0
    assert "+0.0000 [+0.0000, +0.0000]" in printed
    code, printed, _ = run("compare", first, second, "--json")
    assert json.loads(printed)["mrr"]["p_value"] == 1
