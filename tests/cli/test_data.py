"""`cascader data`: what is there, what is odd about it, and other formats of it."""

import pytest


def test_list_shows_all_names(run):
    code, out, _ = run("data", "list")
    assert code == 0
    for name in ("wordnet", "repodb", "codex-s", "codex-m", "fb15k-237", "wn18rr"):
        assert name in out


def test_list_says_at_hand_only_of_what_is(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CASCADER_WORDNET", str(tmp_path))
    rows = {line.split()[0]: line for line in run("data", "list")[1].splitlines() if line.strip()}
    assert "not installed" in rows["wordnet"]
    assert "download" in rows["repodb"]
    (tmp_path / "data.noun").touch()
    rows = {line.split()[0]: line for line in run("data", "list")[1].splitlines() if line.strip()}
    assert " yes " in rows["wordnet"]


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


def test_check_counts_a_single_thing_in_the_singular(run, tmp_path):
    (tmp_path / "train.tsv").write_text("a\tr\tb\n")
    (tmp_path / "entities.tsv").write_text("id\tname\na\tA\nb\tB\nc\tC\n")
    code, out, _ = run("data", "check", tmp_path)
    assert code == 0
    assert "The first triple of train, by name:" in out
    assert "1 entity appears in no triple." in out


def test_check_shows_ten_rows_by_name_and_the_columns_it_took_them_from(run, tmp_path, caplog):
    caplog.set_level("INFO")  # as main() sets it, where pytest does not
    rows = [f"e{i};knows;e{j};2020" for i in range(8) for j in range(i)]
    (tmp_path / "g.csv").write_text("\n".join(["From;how;To;year", *rows]))
    (tmp_path / "e.csv").write_text("\n".join(f"e{i},person {i}" for i in range(8)))
    code, out, _ = run("data", "check", tmp_path / "g.csv", "--entities", tmp_path / "e.csv")
    assert code == 0
    assert "The first 10 triples of train, by name:" in out
    assert out.count("knows") == 10
    assert "person 1" in out
    assert "head, relation and tail are the columns from, how, to; not read: year." in caplog.text


def test_check_asks_about_a_strange_header_and_columns_answers(run, tmp_path, caplog):
    (tmp_path / "g.csv").write_text("Wer,wie,wen\na,kennt,b\nb,kennt,c\nc,kennt,a\n")
    assert run("data", "check", tmp_path / "g.csv")[0] == 0
    assert "is this a header?" in caplog.text
    caplog.clear()
    code, out, _ = run("data", "check", tmp_path / "g.csv", "--columns", "Wer,wie,wen")
    assert code == 0
    assert "Wer" not in out
    assert "is this a header?" not in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("source;relation;target\na;r\n", "g.csv:2: found 2 columns, expected 3 as in the first row."),
        ("source;relation;target\n", "g.csv has a header but no rows, expected at least one."),
        ("a b c\nb c d\n", "g.csv:1: found 1 column, expected 3: head, relation, tail."),
    ],
)
def test_a_file_that_cannot_be_read_ends_with_a_sentence_and_code_2(run, tmp_path, content, message):
    (tmp_path / "g.csv").write_text(content)
    code, _, err = run("data", "check", tmp_path / "g.csv")
    assert code == 2
    assert message in " ".join(err.split())


def test_two_columns_where_three_are_asked_for(run, triples):
    code, _, err = run("data", "check", triples, "--columns", "1,2")
    assert code == 2
    assert "--columns '1,2' names 2, expected three: HEAD,RELATION,TAIL." in err


def test_convert_refuses_a_link_to_itself(run, triples, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    code, _, err = run("data", "convert", triples, "--to", "csv", "--out", tmp_path / "loop")
    assert (code, "is a link that leads back to itself. Remove it, or name another" in err) == (2, True)


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
