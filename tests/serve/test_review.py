"""Reviewing over HTTP: the list, reasons, decisions, and what a server that is read-only refuses."""

import shutil
import time

import pytest

import cascader
from tests.serve.conftest import EVIL, client_of


@pytest.fixture
def folder(structural_folder, tmp_path):
    return shutil.copytree(structural_folder, tmp_path / "run")


@pytest.fixture
def client(folder):
    with client_of(folder) as client:
        yield client


def part(client, **asked):
    """The list, once it is made."""
    for _ in range(200):
        found = client.get("/api/review", params=asked)
        assert found.status_code == 200, found.text
        if found.json()["is_ready"]:
            return found.json()
        time.sleep(0.05)
    raise AssertionError("the list was never ready")


def ids(link):
    return {end: link[end]["id"] for end in ("head", "relation", "tail")}


def decide(client, link, decision, reviewer="ann"):
    return client.post("/api/review/decide", json={**ids(link), "decision": decision, "reviewer": reviewer})


def test_the_list_has_what_the_command_line_lists(client, folder):
    found = part(client, limit=100)
    links = cascader.load_run(folder).review.links()
    assert [tuple(ids(link).values()) for link in found["links"]] == [link.triple for link in links[:100]]
    assert found["links"][0]["probability"] == pytest.approx(links[0].probability)
    assert (found["waiting"], found["question_count"]) == (len(links), found["questions"])
    assert sum(relation["count"] for relation in found["relations"]) == len(links)
    assert EVIL in [link["tail"]["name"] for link in found["links"]]


def test_a_link_comes_with_reasons_and_their_facts(client):
    link = part(client)["links"][0]
    found = client.get("/api/review/link", params=ids(link)).json()
    assert ids(found) == ids(link)
    assert found["reasons"]
    assert any(reason["facts"] for reason in found["reasons"])
    assert client.get("/api/review/link", params={**ids(link), "head": "nobody"}).status_code == 404
    assert client.get("/api/review/link", params={"head": "e0"}).status_code == 422


def test_decisions_count_at_once_and_can_be_undone(client, folder):
    before = part(client, reviewer="ann")
    first, second, third = before["links"][:3]
    made = decide(client, first, "accepted")
    assert made.json()["counts"] == {"accepted": 1, "rejected": 0, "skipped": 0}
    decide(client, second, "rejected")
    decide(client, third, "skipped")
    now = part(client, reviewer="ann")
    assert now["counts"] == {"accepted": 1, "rejected": 1, "skipped": 1}
    assert (now["waiting"], now["decided_since"]) == (before["waiting"] - 3, 2)
    assert part(client, reviewer="bob")["waiting"] == before["waiting"] - 2
    question = {"entity": first["head"]["id"], "relation": first["relation"]["id"], "top": 100}
    answered = client.post("/api/answer", json=question).json()
    assert first["tail"]["id"] not in [answer["id"] for answer in answered["answers"]]
    assert first["tail"]["id"] in [known["id"] for known in answered["known"]]
    asked = {"entity": second["head"]["id"], "relation": second["relation"]["id"], "top": 100, "with_known": True}
    answered = client.post("/api/answer", json=asked).json()
    assert second["tail"]["id"] not in [answer["id"] for answer in answered["answers"]]
    verdict = client.post("/api/classify", json={"triples": [list(ids(first).values())]}).json()["verdicts"][0]
    assert verdict["is_known"]
    for link, outcome in ((third, "skipped"), (second, "rejected"), (first, "accepted")):
        undone = client.post("/api/review/undo", json={"reviewer": "ann"}).json()
        assert (ids(undone), undone["decision"]) == (ids(link), outcome)
    assert client.post("/api/review/undo", json={"reviewer": "ann"}).json()["decision"] is None
    assert part(client, reviewer="ann")["waiting"] == before["waiting"]
    assert len(cascader.load_run(folder).review.decisions) == 0


def test_what_others_decide_meanwhile_is_seen(client, folder):
    link = part(client)["links"][0]
    cascader.load_run(folder).review.accept(*ids(link).values(), reviewer="bob")
    assert ids(link) not in [ids(each) for each in part(client)["links"]]
    found = client.get("/api/review/link", params=ids(link)).json()
    assert (found["decision"], found["reviewer"]) == ("accepted", "bob")


def test_the_list_can_be_made_again(client):
    first = part(client)["links"][0]
    decide(client, first, "accepted")
    assert client.post("/api/review/renew").status_code == 200
    again = part(client)
    assert again["decided_since"] == 0
    assert ids(first) not in [ids(link) for link in again["links"]]


def test_filters(client):
    everything = part(client, limit=100)
    relation = everything["links"][0]["relation"]["id"]
    of_relation = part(client, relation=relation, limit=100)
    assert {link["relation"]["id"] for link in of_relation["links"]} == {relation}
    least = everything["links"][3]["probability"]
    probable = part(client, min_probability=least)
    assert all(link["probability"] >= least for link in probable["links"])


def test_the_export_is_what_the_command_line_reads(client, folder, tmp_path, run):
    first, second = part(client)["links"][:2]
    decide(client, first, "accepted")
    decide(client, second, "rejected")
    table = client.get("/api/review/export")
    assert table.headers["content-disposition"] == 'attachment; filename="decisions.tsv"'
    (tmp_path / "decisions.tsv").write_text(table.text)
    assert len(table.text.splitlines()) == 3
    assert len(client.get("/api/review/export", params={"format": "nt"}).text.splitlines()) == 1
    assert client.get("/api/review/export", params={"format": "exe"}).status_code == 422
    for _ in range(2):
        client.post("/api/review/undo", json={"reviewer": "ann"})
    code, out, err = run("review", folder, "--import", tmp_path / "decisions.tsv")
    assert (code, "1 accepted and 1 rejected" in out) == (0, True), err


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"head": "nobody"}, 404, "no entity is called 'nobody'"),
        ({"decision": "perhaps"}, 422, "decision"),
        ({"reviewer": ""}, 422, "reviewer"),
        ({"reviewer": "a\nb"}, 422, "cannot name a reviewer"),
        ({"more": 1}, 422, "there is no field 'more'"),
    ],
)
def test_bad_decisions_are_refused(client, change, status, error):
    link = part(client)["links"][0]
    found = client.post("/api/review/decide", json={**ids(link), "decision": "accepted", **change})
    assert (found.status_code, error in found.json()["error"]) == (status, True), found.text


def test_a_fact_of_the_graph_cannot_be_decided(client, folder):
    kg = cascader.load_run(folder).kg
    head, relation, tail = kg.train[0]
    fact = {"head": kg.entities[head].id, "relation": kg.relations[relation].id, "tail": kg.entities[tail].id}
    found = client.post("/api/review/decide", json={**fact, "decision": "rejected"})
    assert (found.status_code, "is a fact of the graph already" in found.json()["error"]) == (422, True)


def test_a_server_that_is_read_only_shows_and_refuses(folder):
    with client_of(folder, read_only=True) as client:
        found = part(client)
        assert found["is_read_only"]
        for path, body in (("decide", {**ids(found["links"][0]), "decision": "accepted"}), ("undo", {})):
            refused = client.post(f"/api/review/{path}", json=body)
            assert (refused.status_code, "this server is read-only" in refused.json()["error"]) == (403, True)
    assert len(cascader.load_run(folder).review.decisions) == 0


def test_a_token_is_required_here_too(folder):
    with client_of(folder, token="secret") as client:  # noqa: S106
        assert client.get("/api/review").status_code == 401
        assert client.post("/api/review/undo", json={}).status_code == 401
        assert client.get("/api/review/export").status_code == 401
