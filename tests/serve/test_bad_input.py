"""Whatever a client sends: it hears what was wrong, and the server goes on."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from cascader.graph import NameIndex, names
from cascader.runs import Predictor, load_run
from cascader.serve import Limits, create_app
from cascader.serve.middleware import allowed_hosts, is_loopback
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


def test_more_answers_in_a_batch_than_memory_has_room_for_are_too_many(plain):
    questions = [{"entity": "e0", "relation": "of", "top": 1000}] * 11
    body = refused(plain.post("/api/batch", json={"questions": questions}), 422)
    assert "asks for 11,000 answers in all, of at most 10,000" in body["error"]


def test_a_hundred_names_that_are_long_once_folded_are_compared_with_no_other(plain, monkeypatch):
    """300 KB: each took seconds to compare with all others, and nothing else was answered meanwhile."""
    monkeypatch.setattr(names, "_similar", lambda folded, *_: pytest.fail(f"compared {len(folded):,} characters"))
    text = "\ufdfa" * 1000
    questions = [{"entity": text, "relation": "of"}] * 100
    content = json.dumps({"questions": questions}, ensure_ascii=False).encode()
    assert len(content) > 300_000
    answers = plain.post("/api/batch", content=content, headers=JSON).json()["answers"]
    assert len(answers) == 100
    assert all("no entity is called" in answer["error"] and answer["suggestions"] == [] for answer in answers)
    refused(plain.post("/api/answer", json=questions[0]), 404)
    refused(plain.get("/api/entity", params={"id": text}), 404)
    assert plain.get("/api/entities", params={"q": text}).json()["total"] == 0


def test_close_names_are_looked_for_within_the_time_limit(plain_folder, monkeypatch):
    monkeypatch.setattr(NameIndex, "closest", lambda *_: time.sleep(1) or [])
    with client_of(plain_folder, limits=Limits(seconds=0.05)) as client:
        for response in (
            client.post("/api/answer", json={"entity": "aple", "relation": "of"}),
            client.get("/api/entity", params={"id": "aple"}),
            client.get("/api/entities", params={"q": "aple"}),
        ):
            assert "no answer within 0.05 seconds" in refused(response, 503)["error"]


def test_of_many_errors_the_first_is_said(plain):
    """An error for each of a hundred thousand fields kept everyone waiting for most of a second."""
    many = {f"field {i}": 1 for i in range(10_000)}
    body = refused(plain.post("/api/answer", json=many), 422)
    assert "there is no field 'field 0'" in body["error"]
    body = refused(plain.post("/api/batch", json={"questions": [many] * 5}), 422)
    assert body["error"].startswith("questions.0: there is no field 'field 0'")
    for wrong in ({"entity": [[1, 2]] * 100_000}, {"entity": {str(i): i for i in range(10_000)}}, {"top": "x" * 10**5}):
        body = refused(plain.post("/api/answer", json={"relation": "of", **wrong}), 422)
        assert len(body["error"]) < 1000


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


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("token", ["schlüssel 🔑", "voilà", "a b"])  # the last byte of the second looks like a space
def test_a_token_is_utf8_and_the_case_of_its_scheme_does_not_matter(plain_folder, scheme, token):
    with client_of(plain_folder, token=token) as client:

        def status(given):
            return client.get("/api/health", headers={"Authorization": given}).status_code

        assert status(f"{scheme} {token}".encode()) == 200
        for wrong in (
            f"{scheme} {token}!".encode(),
            f"{scheme} {token[:-1]}".encode(),
            token.encode(),
            scheme.encode(),
        ):
            assert status(wrong) == 401


def test_the_token_stands_in_the_description_of_the_api(plain_folder):
    with client_of(plain_folder, token="secret") as client:
        described = client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    assert all(each["security"] for path in described["paths"].values() for each in path.values())


def test_behind_a_proxy_with_a_certificate_the_cookie_is_for_https_only(plain_folder):
    with client_of(plain_folder, token="secret") as client:
        client.base_url = "https://localhost"
        cookie = client.get("/api/health", headers={"Authorization": "Bearer secret"}).headers["set-cookie"]
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("128.0.0.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_an_address_says_whether_others_can_reach_it(address, expected):
    assert is_loopback(address) is expected


def test_a_server_on_every_address_goes_by_any_name_and_another_by_its_own():
    assert allowed_hosts("0.0.0.0") == allowed_hosts("::") == ["*"]
    assert "127.evil.example" in allowed_hosts("127.evil.example")
    assert "[fe80::1]" in allowed_hosts("fe80::1")


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


def test_when_too_many_wait_the_next_is_sent_away_and_health_is_answered(plain_folder, held_up):
    question = {"entity": "e0", "relation": "of"}
    with client_of(plain_folder, limits=Limits(waiting=5)) as client, ThreadPoolExecutor(64) as clients:
        work = held_up()
        try:
            first = clients.submit(client.post, "/api/answer", json=question)
            assert work.has_begun.wait(60)
            others = [clients.submit(client.post, "/api/answer", json=question) for _ in range(63)]
            while sum(other.done() for other in others) < 58:
                time.sleep(0.01)
            assert client.get("/api/health").json()["status"] == "ok"
            assert "cascader_questions_waiting 5.0" in client.get("/api/metrics").text
        finally:
            work.goes_on.set()
        assert first.result().status_code == 200
        answers = [other.result() for other in others]
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [503] * 58
        sent_away = [answer for answer in answers if answer.status_code == 503]
        assert all("5 questions are waiting already" in answer.json()["error"] for answer in sent_away)
        assert {answer.headers["retry-after"] for answer in sent_away} == {"1"}


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


@pytest.mark.parametrize("limit", [1.0, 60.0])
def test_a_budget_may_be_as_long_as_this_servers_answers_may_take(plain_folder, limit):
    question = {"entity": "red", "relation": "of"}
    with client_of(plain_folder, limits=Limits(seconds=limit)) as client:
        assert client.post("/api/answer", json={**question, "budget": {"seconds": limit}}).status_code == 200
        found = client.post("/api/answer", json={**question, "budget": {"seconds": limit + 1}})
        assert found.status_code == 422
        assert found.json()["error"] == f"budget.seconds is {limit + 1:g}, expected at most {limit:g}. Ask for less."
