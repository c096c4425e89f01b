"""What a client gets from a run: the graph, entities, answers, verdicts and the page."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

import cascader
from cascader.runs import load_run
from cascader.serve import app as app_module
from tests.serve.conftest import EVIL, client_of

ASPECTS = {"question", "answers", "known", "known_count", "read", "cost"}


def ask(client, **body):
    return client.post("/api/answer", json={"relation": "of", **body})


def test_health_names_the_run_and_the_version(words):
    assert words.get("/api/health").json() == {"status": "ok", "run": "words", "version": cascader.__version__}


def test_the_graph_tells_all_that_a_client_needs_before_it_asks(words):
    graph = words.get("/api/graph").json()
    assert (graph["name"], graph["entity_count"], graph["relation_count"]) == ("words", 16, 3)
    assert set(graph["triple_counts"]) == {"train", "valid", "test"}
    assert [tier["name"] for tier in graph["tiers"]] == ["kge", "dual", "cross"]
    assert [tier["kind"] for tier in graph["tiers"]] == ["ComplEx", "DualEncoder", "CrossEncoder"]
    assert all(tier["parameters"] > 0 for tier in graph["tiers"])
    assert sum(relation["count"] for relation in graph["relations"]) == sum(graph["triple_counts"].values())
    assert (graph["has_probabilities"], graph["reads_new"], graph["has_report"]) == (True, True, False)
    assert len({example["entity"]["id"] for example in graph["examples"]}) == 3
    for example in graph["examples"]:
        found = ask(words, entity=example["entity"]["id"], relation=example["relation"]["id"], side=example["side"])
        assert found.status_code == 200


def test_budgets_are_the_best_for_what_they_cost_cheapest_first(words):
    budgets = words.get("/api/graph").json()["budgets"]
    assert 1 <= len(budgets) <= 6
    assert budgets[0]["pairs"] == 0
    for key in ("pairs", "valid_mrr"):
        values = [budget[key] for budget in budgets]
        assert values == sorted(set(values))
    for budget in budgets:
        cost = ask(words, entity="red", budget={"pairs": budget["pairs"]}).json()["cost"]
        assert (cost["tiers"], cost["valid_mrr"]) == (budget["tiers"], budget["valid_mrr"])


def test_answers_are_those_of_the_run_itself(words, words_folder):
    found = ask(words, entity="red", top=3).json()
    expected = load_run(words_folder).predict("red", "of", top=3)
    assert found.keys() == ASPECTS
    assert [answer["id"] for answer in found["answers"]] == [prediction.id for prediction in expected]
    for answer, prediction in zip(found["answers"], expected, strict=True):
        assert answer["probability"] == pytest.approx(prediction.probability)
        assert [step["words"] for step in answer["trace"]] == [trace.in_words() for trace in prediction.trace]
        assert answer["reasons"] == []  # nobody asked why
    assert found["question"]["anchor"]["id"] == "e0"
    assert found["question"]["side"] == "tail"
    assert [entity["id"] for entity in found["known"]] == ["e8", "e10", "e12", "e14"]
    assert found["known_count"] == 4


def test_who_asks_why_gets_the_reasons_of_the_run_with_hostile_names_as_they_are(structural_folder):
    with client_of(structural_folder) as client:
        found = ask(client, entity="e12", side="head", top=8, with_known=True, why=True).json()["answers"]
    expected = load_run(structural_folder).predict("e12", "of", "head", top=8, with_known=True)
    for answer, prediction in zip(found, expected, strict=True):
        assert [reason["words"] for reason in answer["reasons"]] == [told.in_words() for told in prediction.reasons]
        assert sum(step["share"] for step in answer["trace"]) == pytest.approx(1)
    facts = [fact for answer in found for reason in answer["reasons"] for fact in reason["facts"]]
    assert {"id": "e12", "name": EVIL} in [fact["tail"] for fact in facts]


def test_known_facts_take_part_where_they_are_wanted(words):
    found = ask(words, entity="red", top=16, with_known=True).json()["answers"]
    assert {answer["id"] for answer in found if answer["is_known"]} == {"e8", "e10", "e12", "e14"}
    assert len(found) == 15  # all entities but the anchor


def test_texts_are_given_as_the_language_models_read_them(words):
    found = ask(words, entity="red", top=16).json()
    assert found["read"]["question"].startswith("is the colour of | red: something red")
    assert set(found["read"]["of"].split(", ")) <= {"dual", "cross"}
    for answer in found["answers"]:
        whole = f"{answer['name']}: {answer['description'].strip()}"
        assert whole.startswith(answer["read"])
        assert len(answer["read"]) < len(whole)  # forty tokens of single letters


def test_heads_are_asked_for_with_the_side_head(words):
    found = ask(words, entity="apple", side="head").json()
    assert found["question"]["side"] == "head"
    assert found["read"]["question"].startswith("reverse of is the colour of | apple")


def test_pairs_are_read_once_and_kept_for_the_next_server(words_folder, tmp_path):
    folder = shutil.copytree(words_folder, tmp_path / "words")
    costs = []
    for _ in range(2):
        with client_of(folder) as client:
            assert client.get("/api/graph").json()["budgets"][-1]["pairs"] > 0
            costs += [ask(client, entity="e15").json()["cost"] for _ in range(2)]
    assert costs[0]["pairs_read"] > 0
    asked = costs[0]["pairs_read"] + costs[0]["pairs_from_store"]
    assert [(cost["pairs_read"], cost["pairs_from_store"]) for cost in costs[1:]] == [(0, asked)] * 3


def test_a_new_entity_is_answered_by_its_text(words):
    found = ask(words, new={"name": "pink", "description": "something pink"}, top=2).json()
    assert found["question"]["is_new"]
    assert found["question"]["anchor"]["name"] == "pink"
    assert found["known"] == []
    assert [answer["probability"] for answer in found["answers"]] == [None, None]
    assert found["cost"]["valid_mrr"] is None


def test_seconds_are_a_budget_too(words):
    found = ask(words, entity="red", budget={"seconds": 5}).json()
    assert found["cost"]["complete"]
    assert ask(words, entity="red", budget={"seconds": 1e-9}).status_code == 200  # the first tiers answer anyway


def test_a_relation_that_was_never_seen_is_answered(words):
    found = ask(words, entity="red", relation="is never")
    assert found.status_code == 200
    assert len(found.json()["answers"]) == 10


def test_a_batch_answers_what_it_can_and_says_what_it_cannot(words):
    questions = [{"entity": "red", "relation": "of"}, {"entity": "rde", "relation": "of"}]
    good, bad = words.post("/api/batch", json={"questions": questions}).json()["answers"]
    assert good.keys() == ASPECTS
    assert "no entity is called 'rde'" in bad["error"]
    assert "ask /api/answer, to get the closest names" in bad["error"]
    assert bad["suggestions"] == []  # looked for in each of a hundred, they would take long


def test_questions_of_many_clients_at_once_get_the_answers_they_get_alone(words):
    bodies = [{"entity": f"e{i % 16}", "side": side, "top": 1 + i % 5} for i in range(32) for side in ("head", "tail")]
    alone = [ask(words, **body).json()["answers"] for body in bodies]
    with ThreadPoolExecutor(16) as clients:
        together = list(clients.map(lambda body: ask(words, **body).json()["answers"], bodies))
    for one, other in zip(alone, together, strict=True):
        assert [answer["id"] for answer in one] == [answer["id"] for answer in other]
        assert [a["score"] for a in one] == pytest.approx([a["score"] for a in other], rel=1e-4, abs=1e-4)


def test_verdicts_are_those_of_the_run_itself(words, words_folder):
    triples = [["red", "of", "apple"], ["blue", "of", "sea"], ["green", "like", "fire"]] * 20
    found = words.post("/api/classify", json={"triples": triples}).json()
    expected = load_run(words_folder).classify([tuple(triple) for triple in triples])
    assert len(found["verdicts"]) == 60
    for body, verdict in zip(found["verdicts"], expected, strict=True):
        assert body["probability"] == pytest.approx(verdict.probability, rel=1e-4)
        assert (body["is_true"], body["is_known"]) == (verdict.is_true, verdict.is_known)
        assert body["is_true"] == (body["probability"] >= found["threshold"])


def test_pairs_that_verdicts_have_read_are_not_counted_for_ever(words):
    for _ in range(2):  # the second time, they are in the store
        words.post("/api/classify", json={"triples": [["e3", "like", "e13"]]}).json()
    assert not any(scorer.new_pairs for scorer in words.app.state.service._counting)


def test_entities_are_found_by_any_part_of_their_name(words):
    def ids(**query):
        return [entity["id"] for entity in words.get("/api/entities", params=query).json()["entities"]]

    assert ids(q="RED") == ["e0", "e6"]  # its start, then the start of a word
    assert ids(q="Ümla") == ["e12"]
    assert ids(q="un") == ["e13"]
    assert ids(q="e15") == ["e15"]
    assert "e9" in ids(q="laef")
    assert len(ids(q="")) == 16
    assert len(ids(q="", limit=3)) == 3
    assert words.get("/api/entities", params={"q": "", "limit": 3}).json()["total"] == 16


def test_an_entity_says_first_what_makes_sense_to_ask(words):
    entity = words.get("/api/entity", params={"id": "red"}).json()
    assert (entity["id"], entity["name"]) == ("e0", "red")
    slots = [(relation["id"], relation["side"]) for relation in entity["relations"]]
    assert len(set(slots)) == len(slots) == 6
    assert set(slots[:2]) == {("of", "tail"), ("like", "tail")}
    facts = [relation["facts"] for relation in entity["relations"]]
    assert facts == sorted(facts, reverse=True)
    assert sum(facts) == 8
    assert all(0 <= relation["share"] <= 1 for relation in entity["relations"])


def test_markup_in_a_name_is_text_and_nothing_loads_from_elsewhere(words):
    found = words.get("/api/entity", params={"id": "e12"})
    assert found.json()["name"] == EVIL
    assert found.headers["content-type"] == "application/json"
    assert found.headers["content-security-policy"].startswith("default-src 'self'")
    assert "unsafe-inline" not in found.headers["content-security-policy"]
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"


def test_a_run_with_one_tier_has_one_budget_and_reads_no_texts(plain):
    graph = plain.get("/api/graph").json()
    assert [budget["tiers"] for budget in graph["budgets"]] == [["kge"]]
    assert graph["reads_new"] is False
    assert ask(plain, entity="red").json()["read"]["of"] == ""


def test_the_report_is_shown_once_it_is_made(plain_folder, tmp_path):
    folder = shutil.copytree(plain_folder, tmp_path / "plain")
    with client_of(folder) as client:
        missing = client.get("/report")
        assert missing.status_code == 404
        assert f"cascader report {folder}" in missing.json()["error"]
        (folder / "report").mkdir()
        (folder / "report" / "report.html").write_text("<style>p {}</style>")
        assert client.get("/report").text == "<style>p {}</style>"
        policy = client.get("/report").headers["content-security-policy"].split("; ")
        assert {"style-src 'unsafe-inline'", "form-action 'none'", "base-uri 'none'", "sandbox"} <= set(policy)
        assert client.get("/api/graph").json()["has_report"] is True


def test_the_page_is_served_with_its_files(plain_folder, tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("<p>hello")
    (tmp_path / "app.js").write_text("hello()")
    monkeypatch.setattr(app_module, "PAGE", tmp_path)
    with client_of(plain_folder, token="secret") as client:
        assert client.get("/").text == "<p>hello"
        assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")
        assert client.get("/page/../conftest.py").status_code == 404


def test_the_api_describes_itself_without_pages_from_elsewhere(words):
    described = words.get("/openapi.json").json()
    reviewing = ("review", *(f"review/{name}" for name in ("link", "decide", "undo", "renew", "export")))
    asking = ("health", "graph", "entities", "entity", "answer", "batch", "classify", "metrics")
    assert set(described["paths"]) == {f"/api/{name}" for name in (*asking, *reviewing)}
    assert words.get("/docs").status_code == 404
