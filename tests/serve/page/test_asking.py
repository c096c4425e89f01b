"""Asking on the page: in a browser, on a server that answers from a small run with three tiers."""

import json
import time
from pathlib import Path

import pytest

from tests.serve.page.conftest import QUESTION, asked, names, settled

pytestmark = pytest.mark.slow  # in a browser


def test_an_empty_page_offers_questions_and_the_report(opened):
    page = settled(opened())
    examples = page.request.get(page.url + "api/graph").json()["examples"]
    assert page.locator(".examples a").count() == len(examples) > 0
    assert page.locator("#report").get_attribute("href") == "/report"
    page.locator(".examples a").first.click()
    assert len(names(asked(page))) == 10
    assert page.title().endswith("– cascader")


def test_search_then_ask(opened):
    page = settled(opened())
    page.get_by_role("combobox", name="Entity").fill("drug")
    page.get_by_role("option", name="drug C").click()
    asked(page, entity="d2", relation="treats", side="tail")
    assert page.locator("#answers-title").inner_text() == "drug C treats ?"
    assert page.locator("#relation optgroup").first.get_attribute("label") == "Has known facts"
    assert "known fact" in page.locator("#side-tail").inner_text()
    assert all(text.endswith("%") for text in page.locator(".probability .number").all_inner_texts())
    assert page.locator(".answer svg").count() == 10


def test_the_other_side_and_another_relation(opened):
    page = asked(opened(QUESTION))
    page.locator("#sides").get_by_text("? treats drug C").click()
    asked(page, side="head")
    assert page.locator("#answers-title").inner_text() == "? treats drug C"
    page.get_by_role("form", name="Question").get_by_label("Relation").select_option("prescribes")
    asked(page, relation="prescribes", side="head")  # doctors prescribe drugs: that side makes sense
    page.go_back()
    asked(page, relation="treats", side="head")
    assert page.get_by_role("form", name="Question").get_by_label("Relation").input_value() == "treats"


def test_a_trace_says_what_every_tier_did_and_read(opened):
    page = asked(opened(QUESTION))
    first = page.locator(".answer").first
    first.get_by_role("button", name="Why").click()
    assert first.get_by_role("button", name="Why").get_attribute("aria-expanded") == "true"
    steps = first.locator(".steps li").all_inner_texts()
    assert [step.split()[0] for step in steps] == ["kge", "dual", "cross"]
    assert "Ranks it number" in steps[0]
    assert "ounts for" in steps[0] or "Does not count" in steps[0]
    question, answer = first.locator("blockquote").all_inner_texts()
    assert "treats" in question
    assert "drug C: a medicine of kind 2" in question
    assert first.locator(".name").inner_text() in answer


def test_the_slider_reranks_and_says_what_it_cost(opened):
    page = asked(opened(QUESTION))
    page.locator("#pairs").press("Home")
    asked(page, pairs="0")
    cost = page.locator("#cost").inner_text()
    assert "Pairs read\n0" in cost
    assert "cross" not in cost
    assert page.locator("#moved").inner_text() != ""
    assert "MRR" in page.locator("#pairs").get_attribute("aria-valuetext")
    page.locator("#pairs").press("End")
    asked(page, pairs=None)
    assert "cross" in page.locator("#cost").inner_text()


def test_an_answer_that_comes_too_late_is_not_shown(opened):
    page = asked(opened(QUESTION))
    page.route("**/api/answer", lambda route: (time.sleep(0.5), route.continue_()))
    page.locator("#relation").select_option("prescribes")
    page.wait_for_url("**relation=prescribes**")
    page.go_back()
    asked(page, relation="treats")
    page.wait_for_timeout(700)
    assert page.locator("#answers-title").inner_text() == "drug C treats ?"


def test_every_answer_is_the_next_question_and_the_way_back_is_kept(opened):
    page = asked(opened(QUESTION))
    first = page.locator(".answer .name").nth(1)
    name, entity = first.inner_text(), first.get_attribute("data-entity")
    first.click()
    asked(page, entity=entity)
    assert page.evaluate("document.activeElement.id") == "answers-title"
    assert page.locator("#trail li").all_inner_texts() == ["drug C", name]
    page.go_back()
    asked(page, entity="d2", relation="treats")
    assert page.evaluate("document.activeElement.id") == "answers-title"
    assert not page.locator("#trail").is_visible()
    page.go_forward()
    asked(page, entity=entity)
    page.locator("#trail a").click()
    asked(page, entity="d2")
    assert page.locator("#answers-title").inner_text() == "drug C treats ?"


def test_known_facts_stand_apart_until_they_are_switched_in(opened, drugs_run):
    page = asked(opened(QUESTION))
    drug, treats = drugs_run.kg.entity_index("d2"), drugs_run.kg.relation_index("treats")
    known = [drugs_run.kg.entities[t].name for h, r, t in drugs_run.kg.triples().tolist() if (h, r) == (drug, treats)]
    apart = page.locator(".known .name").all_inner_texts()
    assert sorted(apart) == sorted(known) != []
    assert not set(apart) & set(names(page))
    page.get_by_role("switch", name="Rank known facts too").check()
    asked(page, known="1")
    assert page.locator(".answer .tag", has_text="known").count() > 0


def test_more_answers(opened):
    page = asked(opened(QUESTION))
    page.get_by_role("button", name="More answers").click()
    assert len(names(asked(page, top="20"))) > 10
    assert page.evaluate("document.activeElement.closest('.answer').querySelector('.place').lastChild.data") == "11"


def test_a_new_entity_is_asked_about_by_its_text(opened):
    page = settled(opened())
    page.get_by_label("New entity").check()
    page.get_by_label("Name").fill("drug Z")
    page.get_by_label("Description").fill("a medicine of kind 1")
    page.get_by_role("form", name="Question").get_by_label("Relation").select_option("treats")
    asked(page, name="drug Z", description="a medicine of kind 1", relation="treats")
    assert page.locator("#answers-title").inner_text() == "drug Z treats ?"
    assert set(page.locator(".probability .number").all_inner_texts()) == {"–"}
    assert "not for new ones" in page.locator("#note").inner_text()
    page.reload()
    asked(page)
    assert page.get_by_label("Description").input_value() == "a medicine of kind 1"


def test_an_address_can_be_sent(opened):
    path = "/?entity=x3&relation=treats&side=head&pairs=0&known=1&top=20"
    page = asked(opened(path))
    there = names(page)
    assert page.url.endswith(path)
    assert page.locator("#answers-title").inner_text() == "? treats disease D"
    assert page.get_by_role("switch").is_checked()
    page.reload()
    assert names(asked(page)) == there
    assert names(asked(opened(page.url.removeprefix(page.evaluate("location.origin"))))) == there


def test_answers_as_files(opened):
    page = asked(opened(QUESTION))
    with page.expect_download() as table:
        page.get_by_role("button", name="TSV").click()
    assert table.value.suggested_filename == "drug-c-treats.tsv"
    header, *rows = Path(table.value.path()).read_text().splitlines()
    assert header.split("\t")[:6] == ["head", "relation", "tail", "side", "rank", "name"]
    assert [row.split("\t")[5] for row in rows] == names(page)
    with page.expect_download() as whole:
        page.get_by_role("button", name="JSON").click()
    found = json.loads(Path(whole.value.path()).read_text())
    assert found["address"] == page.url
    assert [answer["name"] for answer in found["answers"]] == names(page)


def test_while_answers_are_awaited_the_question_stands_and_the_page_says_that_it_is_busy(opened):
    page = settled(opened())
    page.route("**/api/answer", lambda route: None)  # it never answers
    page.get_by_role("combobox", name="Entity").fill("drug C")
    page.get_by_role("option", name="drug C").click()
    page.locator(".bone").first.wait_for()
    page.get_by_text("drug C treats ?").first.wait_for()
    assert page.locator("#answers").get_attribute("aria-busy") == "true"
    assert page.locator("#status").inner_text() == "Looking for answers."
    page.unroute("**/api/answer")
    page.locator("#ask").click()
    assert len(names(asked(page, entity="d2"))) == 10
