"""Whatever a client sends: it hears what was wrong, and the server goes on."""

import json
import time

import pytest
from fastapi.testclient import TestClient

from cascader.runs import Predictor, load_run
from cascader.serve import Limits, create_app
from tests.serve.conftest import client_of

JSON = {"content-type": "application/json"}


def refused(response, status):
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "suggestions"}
    assert "Traceback" not in body["error"]
    return body


def test_a_body_of_ten_megabytes_is_refused(plain):
    for content in (b"x" * 10_000_000, (b"x" * 1_000_000 for _ in range(10))):  # the latter in chunks, of no length
        body = refused(plain.post("/api/answer", content=content, headers=JSON), 413)
        assert "1,048,576 bytes" in body["error"]


@pytest.mark.parametrize("content", [b"{bad", b"", b"\xff\xfe", b"[" * 100_000, b"null", b"[1]"])
def test_what_is_no_question_is_refused(plain, content):
    response = plain.post("/api/answer", content=content, headers=JSON)
    refused(response, response.status_code)
    assert response.status_code in (400, 422)


def test_json_must_be_marked_as_such(plain):
    content = b'{"entity": "red", "relation": "of"}'  # what a form of another site could send
    response = plain.post("/api/answer", content=content, headers={"content-type": "text/plain"})
    assert "Content-Type: application/json" in refused(response, 422)["error"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"side": "left"}, "side"),
        ({"top": 0}, "top"),
        ({"top": 10**9}, "top"),
        ({"budget": {"seconds": -1}}, "seconds"),
        ({"budget": {"pairs": "many"}}, "pairs"),
        ({"budget": {"minutes": 1}}, "minutes"),
        ({"entity": None}, "entity and new"),
        ({"entity": ["red"]}, "entity"),
        ({"new": {"name": "pink"}}, "entity and new"),
        ({"speed": 1}, "speed"),
        ({"entity": "x" * 5000}, "entity"),
    ],
)
def test_a_wrong_field_is_named(plain, change, word):
    body = {"entity": "red", "relation": "of", **change}
    assert word in refused(plain.post("/api/answer", json=body), 422)["error"]


@pytest.mark.parametrize("text", ['{"entity": "\\ud800", "relation": "of"}', '{"entity": "\\u0000", "relation": "of"}'])
def test_text_that_is_none_is_refused(plain, text):
    response = plain.post("/api/answer", content=text, headers=JSON)
    refused(response, response.status_code)
    assert response.status_code in (404, 422)


def test_numbers_that_json_does_not_have_are_refused(plain):
    text = '{"entity": "red", "relation": "of", "budget": {"seconds": NaN}}'
    assert "seconds" in refused(plain.post("/api/answer", content=text, headers=JSON), 422)["error"]


def test_an_unknown_name_gets_the_closest_ones(plain):
    body = refused(plain.post("/api/answer", json={"entity": "aple", "relation": "of"}), 404)
    assert "no entity is called 'aple'" in body["error"]
    assert body["suggestions"][0] == "apple"
    body = refused(plain.post("/api/answer", json={"entity": "apple", "relation": "colour of"}), 404)
    assert "is the colour of" in body["suggestions"]
    assert refused(plain.get("/api/entity", params={"id": "aple"}), 404)["suggestions"][0] == "apple"


def test_a_name_that_several_share_gets_their_ids(plain):
    body = refused(plain.post("/api/answer", json={"entity": "moon", "relation": "of"}), 404)
    assert body["suggestions"] == ["e14", "e15"]


def test_a_thousand_questions_at_once_are_too_many(plain):
    questions = [{"entity": f"e{i % 16}", "relation": "of"} for i in range(1000)]
    body = refused(plain.post("/api/batch", json={"questions": questions}), 413)
    assert "1,000 items, of at most 100" in body["error"]
    assert len(plain.post("/api/batch", json={"questions": questions[:100]}).json()["answers"]) == 100
    refused(plain.post("/api/batch", json={"questions": []}), 422)


def test_more_than_a_thousand_triples_are_too_many(plain):
    body = refused(plain.post("/api/classify", json={"triples": [["e0", "of", "e8"]] * 1001}), 413)
    assert "at most 1,000" in body["error"]
    assert len(plain.post("/api/classify", json={"triples": [["e0", "of", "e8"]] * 1000}).json()["verdicts"]) == 1000
    body = refused(plain.post("/api/classify", json={"triples": [["e0", "of", "e8"], ["e0", "of", "e99"]]}), 404)
    assert body["error"].startswith("triple 2: no entity is called 'e99'")
    refused(plain.post("/api/classify", json={"triples": [["e0", "of"]]}), 422)


def test_a_new_entity_needs_a_tier_that_reads_texts(plain):
    body = refused(plain.post("/api/answer", json={"new": {"name": "pink"}, "relation": "of"}), 422)
    assert "has no dual encoder" in body["error"]


def test_paths_and_methods_that_are_not_there_are_said_to_be_so(plain):
    refused(plain.get("/api/nothing"), 404)
    refused(plain.get("/nothing"), 404)
    refused(plain.get("/page/nothing.js"), 404)
    refused(plain.get("/api/answer"), 405)
    refused(plain.get("/api/entities", params={"limit": 0}), 422)


def test_the_report_wants_the_token_or_the_cookie_that_it_buys(plain_folder):
    with client_of(plain_folder, token="secret") as client:
        refused(client.get("/report"), 401)
        refused(client.get("/report", headers={"Cookie": "cascader-report=; other=1"}), 401)
        client.get("/api/health", headers={"Authorization": "Bearer wrong"})
        assert not client.cookies
        client.get("/api/health", headers={"Authorization": "Bearer secret"})
        assert "secret" not in str(dict(client.cookies))
        refused(client.get("/report"), 404)  # there is none, which only now is told
        assert client.get("/api/health").status_code == 401  # it opens nothing else


def test_the_page_and_the_description_of_the_api_want_no_token(plain_folder):
    with client_of(plain_folder, token="secret") as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secrët".encode()}):
            response = client.get("/api/health", headers=headers)
            refused(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        assert client.get("/api/health", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert client.get("/openapi.json").status_code == 200
        assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("[", 400),
        ("", 400),
    ],
)
def test_only_names_of_this_machine_are_answered(plain, host, status):
    assert plain.get("/api/health", headers={"Host": host}).status_code == status


def test_a_question_that_takes_too_long_is_given_up(plain_folder, monkeypatch):
    answer = Predictor.answer
    monkeypatch.setattr(Predictor, "answer", lambda *given, **options: (time.sleep(0.5), answer(*given, **options))[1])
    with client_of(plain_folder, limits=Limits(seconds=1e-6)) as client:
        response = client.post("/api/answer", json={"entity": "red", "relation": "of"})
        assert "no answer within 1e-06 seconds" in refused(response, 503)["error"]
        assert response.headers["retry-after"] == "5"


def test_when_too_many_wait_the_next_is_sent_away(plain_folder):
    questions = [{"entity": f"e{i % 16}", "relation": "of"} for i in range(100)]
    with client_of(plain_folder, limits=Limits(waiting=1)) as client:
        answers = client.post("/api/batch", json={"questions": questions}).json()["answers"]
        busy = [answer["error"] for answer in answers if "error" in answer]
        assert busy
        assert all("1 questions are waiting already" in error for error in busy)
        assert client.post("/api/answer", json=questions[0]).status_code == 200


def test_a_mistake_of_ours_is_no_traceback_for_the_client_but_one_in_the_log(plain_folder, caplog):
    app = create_app(load_run(plain_folder))
    app.add_api_route("/api/boom", lambda: 1 // 0)
    with caplog.at_level("INFO"), TestClient(app, base_url="http://localhost") as client:
        body = refused(client.get("/api/boom"), 500)
    assert "division" not in body["error"]
    (line,) = (json.loads(record.message) for record in caplog.records if record.name == "cascader.serve.requests")
    assert line["status"] == 500
    assert "ZeroDivisionError" in line["error"]


def test_every_answer_is_json_that_others_can_read(words):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    for entity in (f"e{i}" for i in range(16)):
        response = words.post("/api/answer", json={"entity": entity, "relation": "of", "top": 16})
        json.loads(response.text, parse_constant=refuse)
