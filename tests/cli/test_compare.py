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


def test_compare_takes_the_folder_of_a_run_for_its_own_results(run, triples, tmp_path):
    run("baseline", triples, "--out", tmp_path / "runs")
    folder = tmp_path / "runs" / "friends"
    (folder / "results").mkdir()
    for path in [*folder.glob("frequency.*")]:
        path.rename(folder / "results" / path.name)
    code, printed, _ = run("compare", folder, folder / "results" / "frequency.json")
    assert code == 0
    assert "+0.0000 [+0.0000, +0.0000]" in printed


def test_compare_says_what_a_folder_lacks_and_what_is_not_there(run, tmp_path):
    code, _, err = run("compare", tmp_path, tmp_path)
    assert code == 2
    assert f"has no results yet. Measure it with: cascader evaluate {tmp_path}" in " ".join(err.split())
    code, _, err = run("compare", tmp_path / "gone", tmp_path)
    assert code == 2
    assert f"there is no file or folder {tmp_path / 'gone'}" in " ".join(err.split())
