"""`cascader data`: what is there, what is odd about it, and other formats of it."""


def test_list_shows_all_names(run):
    code, out, _ = run("data", "list")
    assert code == 0
    for name in ("wordnet", "repodb", "codex-s", "codex-m", "fb15k-237", "wn18rr"):
        assert name in out


def test_show_prints_the_counts_home_and_license(run, mirror):
    code, out, _ = run("data", "show", "repodb")
    assert code == 0
    for text in ("2,748", "5,342", "667", "668", "github", "license", "2,379 of 2,748 entities have a description"):
        assert text in out


def test_check_counts_and_tells_what_is_odd(run, triples):
    code, out, _ = run("data", "check", triples)
    assert code == 0
    assert "8 of 8 entities have no description" in out
    assert "The graph can be used." in out


def test_convert_writes_a_folder_that_show_reads(run, triples, tmp_path):
    code, out, _ = run("data", "convert", triples, "--to", "parquet", "--out", tmp_path / "out")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "entities.parquet",
        "relations.parquet",
        "test.parquet",
        "train.parquet",
        "valid.parquet",
    ]
    assert run("data", "show", tmp_path / "out")[0] == 0
