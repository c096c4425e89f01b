"""`cascader review` and `cascader predict --all` as a person meets them."""

import io
import json
import shutil

import pyarrow.parquet
import pytest

import cascader
from tests.cli.conftest import call_once

HOSTILE = "[bold]pain[/bold] \x1b[31mred"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run of the tiers that give reasons, on drugs that treat diseases, one of them with a hostile name."""
    folder = tmp_path_factory.mktemp("review")
    rows = [f"d{a}\ttreats\tx{b}\n" for a in range(8) for b in range(8) if (a * b) % 3 != 1]
    rows += [f"p{a}\tprescribes\td{b}\n" for a in range(4) for b in range(8) if (a * b) % 4 == 1]
    (folder / "drugs.tsv").write_text("".join(rows))
    ids = [*(f"d{i}" for i in range(8)), *(f"x{i}" for i in range(8)), "p0", "p1", "p2", "p3"]
    named = "".join(f"{id_}\t{HOSTILE if id_ == 'x2' else id_}\ta text of {id_}\n" for id_ in ids if id_ not in "p0p2")
    (folder / "names.tsv").write_text("id\tname\tdescription\n" + named)
    tiers = "plausibility,rules,similarity"
    arguments = ("fit", folder / "drugs.tsv", "--entities", folder / "names.tsv", "--tiers", tiers)
    call_once(*arguments, "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def drugs(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "run")


@pytest.fixture
def reviewed(run, monkeypatch):
    """Review with these lines on standard input, as a pipe gives them."""

    def reviewed(folder, keys, *options):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
        return run("review", folder, "--reviewer", "ann", *options)

    return reviewed


def decisions(folder):
    return [(each.triple, each.outcome) for each in cascader.load_run(folder).review.decisions]


def test_the_list_has_one_row_a_link_with_names_probability_and_reason(run, drugs, tmp_path):
    code, out, err = run("predict", drugs, "--all", "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    links = [(row["head"], row["relation"], row["tail"]) for row in rows]
    assert len(set(links)) == len(links)
    probabilities = [row["probability"] for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert {row["tail_name"] for row in rows if row["tail"] == "x2"} == {HOSTILE}
    assert any(row["reason"] for row in rows)
    for suffix in ("tsv", "csv", "parquet", "nt"):
        assert run("predict", drugs, "--all", "--out", tmp_path / f"links.{suffix}")[0] == 0
    header, *lines = (tmp_path / "links.tsv").read_text().splitlines()
    assert header.split("\t") == list(rows[0])
    assert len(lines) == len((tmp_path / "links.nt").read_text().splitlines()) == len(rows)


def test_the_list_on_the_screen_says_where_all_of_it_is(run, drugs):
    code, out, _ = run("predict", drugs, "--all", "--why")
    assert code == 0
    assert "These are 50 of " in out
    assert f"cascader review {drugs}" in out
    assert "\x1b" not in out
    code, _, err = run("predict", drugs, "--all", "--known")
    assert (code, "--known has nothing to add" in err) == (2, True)


def test_a_review_by_keys_is_kept_and_goes_on_where_it_ended(run, reviewed, drugs):
    links = [link.triple for link in cascader.load_run(drugs).review.links()]
    code, out, err = reviewed(drugs, ["a", "reject", "s", "", "?", "q"])
    assert (code, err) == (0, "")
    assert f"{len(links)} links to review, as ann." in out
    assert "\x1b" not in out
    assert "a text of " in out
    assert "similarity" in out
    assert "never proposed again" in out
    assert "This time: 1 accepted, 1 rejected, 1 skipped." in out
    assert decisions(drugs) == [(links[0], "accepted"), (links[1], "rejected")]
    code, out, _ = reviewed(drugs, ["u", "u", "a"])
    assert "1 accepted and 1 rejected so far, 1 skipped" in out
    assert "is no longer skipped" in out
    assert "is no longer rejected" in out
    assert [link for link, outcome in decisions(drugs) if outcome == "accepted"] == [links[0], links[1]]
    _, out, _ = reviewed(drugs, ["u", "u", "u"])
    assert decisions(drugs) == []
    assert "nothing to undo" in out


def test_a_review_of_one_relation_ends_and_skipped_links_have_a_second_turn(run, reviewed, drugs):
    code, out, _ = reviewed(drugs, ["s"] * 500, "--relation", "prescribes", "--top", "1")
    assert code == 0
    assert "Nothing is left of this list" in out
    assert decisions(drugs) == []
    _, out, _ = reviewed(drugs, ["a", "s"] * 300, "--relation", "prescribes", "--top", "1", "--skipped")
    assert "Nothing is left" in out
    found = decisions(drugs)
    assert found
    assert {relation for (_, relation, _), _ in found} == {"prescribes"}
    _, out, _ = reviewed(drugs, ["q"], "--min-probability", "1")
    assert "0 links to review" in out


def test_the_next_answers_change(run, reviewed, drugs):
    def answers():
        _, out, _ = run("predict", drugs, "d2", "treats", "--format", "jsonl")
        return {(row["tail"], row["score"]) for row in map(json.loads, out.splitlines())}

    before = answers()
    reviewed(drugs, ["a", "r"] * 4, "--relation", "treats")
    after = answers()
    decided = {tail for (head, _, tail), _ in decisions(drugs) if head == "d2"}
    assert decided
    assert not decided & {tail for tail, _ in after}
    assert {(tail, score) for tail, score in before if tail not in decided} != after


def test_decisions_go_out_and_in(run, reviewed, drugs, fitted, tmp_path):
    reviewed(drugs, ["a", "a", "r", "s"])
    for suffix in ("tsv", "csv", "jsonl", "parquet", "nt"):
        code, out, _ = run("review", drugs, "--export", tmp_path / f"decisions.{suffix}")
        assert (code, "2 accepted and 1 rejected" in out) == (0, True)
    header, *rows = (tmp_path / "decisions.tsv").read_text().splitlines()
    assert header.split("\t")[:6] == ["head", "relation", "tail", "decision", "reviewer", "time"]
    assert len(rows) == 3
    assert len((tmp_path / "decisions.nt").read_text().splitlines()) == 2
    other = shutil.copytree(fitted, tmp_path / "other")
    for suffix in ("tsv", "csv", "parquet"):
        code, out, err = run("review", other, "--import", tmp_path / f"decisions.{suffix}", "--reviewer", suffix)
        assert (code, "Took 3 decisions" in out) == (0, True), err
    assert sorted(decisions(other)) == sorted(decisions(drugs))


@pytest.mark.parametrize("suffix", ["tsv", "csv", "parquet"])
def test_a_table_without_rows_keeps_its_header(run, drugs, tmp_path, suffix):
    none, some = tmp_path / f"none.{suffix}", tmp_path / f"some.{suffix}"
    for least, path in ((1, none), (0, some)):
        assert run("predict", drugs, "--all", "--why", "--min-probability", least, "--out", path)[0] == 0
    assert header_of(none) == header_of(some)
    for least, path in ((1, none), (0, some)):
        assert run("predict", drugs, "d2", "treats", "--min-probability", least, "--out", path)[0] == 0
    assert header_of(none) == header_of(some)
    assert run("review", drugs, "--export", none)[0] == 0
    assert header_of(none)[:6] == ["head", "relation", "tail", "decision", "reviewer", "time"]


def test_a_table_of_decisions_without_rows_is_refused_as_what_it_is(run, drugs, tmp_path):
    assert run("review", drugs, "--export", tmp_path / "none.tsv")[0] == 0
    code, _, err = run("review", drugs, "--import", tmp_path / "none.tsv")
    assert (code, "none.tsv has a header but no rows, expected at least one" in err) == (2, True)


def test_an_export_in_no_known_format_is_told_what_its_name_may_end_in(run, drugs, tmp_path):
    code, _, err = run("review", drugs, "--export", tmp_path / "d.xlsx")
    said = "d.xlsx does not end in a known format. Name it after the format, one of: tsv, csv, jsonl, parquet, nt."
    assert (code, "--export" in err, said in " ".join(err.split())) == (2, True, True)


def test_a_table_of_labels_is_a_table_of_decisions(run, drugs, tmp_path):
    (tmp_path / "labels.csv").write_text("head,relation,tail,label\nd2,treats,x2,yes\n")
    code, out, err = run("review", drugs, "--import", tmp_path / "labels.csv")
    assert (code, "Took 1 decision" in out) == (0, True), err
    (tmp_path / "labels.csv").write_text("head,relation,tail,is_it\nd2,treats,x2,yes\n")
    code, _, err = run("review", drugs, "--import", tmp_path / "labels.csv")
    said = "the header head, relation, tail, is_it has no column for decision. Name one of them so."
    assert (code, said in " ".join(err.split())) == (2, True)


def header_of(path):
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_schema(path).names  # ours reads no nested columns
    (header, *_) = path.read_text().splitlines()
    return header.split("\t" if path.suffix == ".tsv" else ",")


def test_bad_decisions_are_named_or_skipped(run, drugs, tmp_path):
    table = tmp_path / "d.tsv"
    table.write_text("head\trelation\ttail\tdecision\nd2\ttreats\tx2\tmaybe\nd2\ttreats\tx5\taccept\n")
    code, _, err = run("review", drugs, "--import", table)
    assert (code, "d.tsv:2: 'maybe' is no decision. Write accepted, rejected or skipped." in err) == (2, True)
    assert decisions(drugs) == []
    code, _, err = run("review", drugs, "--import", table, "--keep-going")
    assert (code, "skipped: " in err) == (0, True)
    assert decisions(drugs) == [(("d2", "treats", "x5"), "accepted")]
    table.write_text("d2\ttreats\n")
    code, _, err = run("review", drugs, "--import", table)
    assert (code, "found 2 columns, expected head, relation, tail, decision" in err) == (2, True)
    code, _, err = run("review", drugs, "--import", table, "--export", table)
    assert (code, "cannot be combined" in err) == (2, True)
    code, _, err = run("review", drugs, "--reviewer", " ")
    assert (code, "cannot name a reviewer" in err) == (2, True)


def test_fit_update_learns_from_decisions(run, reviewed, drugs, fitted):
    reviewed(drugs, ["a", "r", "a"])
    (first, _), (second, _), (third, _) = decisions(drugs)
    graph = ("fit", drugs / "graph", "--tiers", "plausibility,rules", "--update", drugs)
    code, out, err = run(*graph)
    assert (code, err) == (0, "")
    assert "Learning from decisions: 2 links accepted, in train; 1 link rejected, as negatives." in out
    updated = cascader.load_run(drugs.parent / "run-updated")
    kg, before = updated.kg, cascader.load_run(drugs).kg
    assert len(kg.train) == len(before.train) + 2
    assert set(updated.review.indices([first, third])[:, 0]) <= set(kg.train[-2:, 0])
    assert decisions(updated.folder.path) == decisions(drugs)
    assert second not in [link.triple for link in updated.review.links()]
    code, out, _ = run(*graph)  # the same command finds everything done
    assert (code, "is already trained" in out) == (0, True)
    assert len(updated.review.decisions.log) == len(cascader.load_run(drugs).review.decisions.log)
    code, _, err = run(*graph, "--out", drugs)
    assert (code, "stays as it is: what learns from it needs another folder" in err) == (2, True)
    code, _, err = run("fit", drugs / "graph", "--update", drugs / "nothing")
    assert (code, "there is no folder" in err) == (2, True)


def test_a_review_of_a_run_that_was_fitted_again_says_what_holds(run, reviewed, drugs):
    reviewed(drugs, ["a", "a"])
    call_once("fit", drugs / "graph", "--tiers", "plausibility,rules", "--out", drugs.parent / "again")
    shutil.copytree(drugs / "review", drugs.parent / "again" / "review")
    code, _, err = reviewed(drugs.parent / "again", ["q"])
    assert code == 0
    assert "note: 2 decisions from before this run was fitted: valid by id, and kept." in err
