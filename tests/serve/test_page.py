"""The page as people meet it: in a browser, on a server that answers from a small run with three tiers."""

import json
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.models.embeddings import ComplEx
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.runs import finish_run, keep_graph, keep_tier, load_run

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested in a browser: pip install playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
uvicorn = pytest.importorskip("uvicorn", reason='needs the extra: pip install "cascader[serve]"')

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PICTURES = Path(__file__).parents[2] / "artefacts" / "page"
HOSTILE = "<img src=x onerror='wasRun=1'>"  # short: the language models read only the beginning of a text
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
TOKEN = "a token of the tests"  # noqa: S105


# A run and its server.


def drugs() -> KnowledgeGraph:
    """Drugs that treat diseases, doctors who prescribe drugs; one disease has markup for a description."""
    facts = [(f"d{a}", "treats", f"x{b}") for a in range(12) for b in range(12) if (a + b) % 3 == 0 or a == b]
    facts += [(f"p{a}", "prescribes", f"d{b}") for a in range(4) for b in range(12) if (a * b) % 4 == 1]
    train, valid = [fact for i, fact in enumerate(facts) if i % 4], facts[::4]
    kg = KnowledgeGraph.from_triples(train=train, valid=valid, test=[("d0", "treats", "x1")], name="drugs")
    kinds = {"d": ("drug", "a medicine of kind"), "x": ("disease", "an illness of kind"), "p": ("doctor", "a person")}
    entities = []
    for entity in kg.entities:
        name, description = kinds[entity.id[0]]
        number = int(entity.id[1:])
        text = HOSTILE if entity.id == "x1" else f"{description} {number % 3}"
        entities.append(Entity(entity.id, f"{name} {chr(ord('A') + number)}", text))
    relations = tuple(Relation(relation.id, relation.name) for relation in kg.relations)
    return KnowledgeGraph("drugs", tuple(entities), relations, kg.train, kg.valid, kg.test)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_model):
    kg, folder = drugs(), tmp_path_factory.mktemp("page") / "run"
    keep_graph(folder, kg)
    keep_tier(folder, "kge", ComplEx(dim=4, epochs=2).fit(kg))
    keep_tier(folder, "dual", DualEncoder(base=tiny_model, dim=8, hidden=16, epochs=30, learning_rate=0.01).fit(kg))
    cross = CrossEncoder(base=tiny_model, rounds=1, queries_per_round=32, split_layer=1).fit(kg)
    keep_tier(folder, "cross", cross)
    finish_run(folder, kg, "tests")
    (folder / "report").mkdir()
    (folder / "report" / "report.html").write_text("<!DOCTYPE html><title>Report: drugs</title>")
    return load_run(folder)


@contextmanager
def served(run, **settings):
    """The run at an address, from a thread of its own."""
    from cascader.serve import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(run, **settings), port=0, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture(scope="module")
def address(run):
    with served(run) as address:
        yield address


# A browser.


@pytest.fixture(scope="module")
def chromium():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser was found: none of {', '.join(BROWSERS)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, address):
    """Opens a page at a path; in the end, no script may have failed and nothing may have come from elsewhere."""
    contexts, failures = [], []

    def opened(path="/", *, size=WIDE, theme="light", origin=address):
        context = chromium.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda said: failures.append(said.text) if "Content Security" in said.text else None)
        page.on(
            "request", lambda asked: failures.append(asked.url) if not asked.url.startswith((origin, "blob:")) else None
        )
        page.goto(origin + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert failures == []


def settled(page):
    """Wait until the page has shown what it was asked for."""
    page.locator("#answers[aria-busy=false]").wait_for()
    return page


def asked(page, **fields):
    """Wait until the address bar holds these, or no such field for None, and their answers are there."""
    page.wait_for_url(
        lambda url: all(parse_qs(urlsplit(url).query).get(name, [None]) == [fields[name]] for name in fields)
    )
    settled(page).locator(".answer .name").first.wait_for()
    return page


def names(page):
    return page.locator(".answer .name").all_inner_texts()


QUESTION = "/?entity=d2&relation=treats&side=tail"


# Asking.


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
    assert page.locator("h1").inner_text() == "drug C treats ?"
    assert page.locator("#relation optgroup").first.get_attribute("label") == "It has such facts"
    assert "known fact" in page.locator("#side-tail").inner_text()
    assert all(text.endswith("%") for text in page.locator(".probability .number").all_inner_texts())
    assert page.locator(".answer svg").count() == 10


def test_the_other_side_and_another_relation(opened):
    page = asked(opened(QUESTION))
    page.locator("#sides").get_by_text("? treats drug C").click()
    asked(page, side="head")
    assert page.locator("h1").inner_text() == "? treats drug C"
    page.get_by_label("Relation").select_option("prescribes")
    asked(page, relation="prescribes", side="head")  # doctors prescribe drugs: that side makes sense
    page.go_back()
    asked(page, relation="treats", side="head")
    assert page.get_by_label("Relation").input_value() == "treats"


def test_a_trace_says_what_every_tier_did_and_read(opened):
    page = asked(opened(QUESTION))
    first = page.locator(".answer").first
    first.get_by_role("button", name="Why").click()
    assert first.get_by_role("button", name="Why").get_attribute("aria-expanded") == "true"
    steps = first.locator(".steps li").all_inner_texts()
    assert [step.split()[0] for step in steps] == ["kge", "dual", "cross"]
    assert "Puts it at rank" in steps[0]
    assert "score" in steps[0]
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
    assert page.locator("h1").inner_text() == "drug C treats ?"


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
    assert page.locator("h1").inner_text() == "drug C treats ?"


def test_known_facts_stand_apart_until_they_are_switched_in(opened, run):
    page = asked(opened(QUESTION))
    drug, treats = run.kg.entity_index("d2"), run.kg.relation_index("treats")
    known = [run.kg.entities[t].name for h, r, t in run.kg.triples().tolist() if (h, r) == (drug, treats)]
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
    page.get_by_label("Relation").select_option("treats")
    asked(page, name="drug Z", description="a medicine of kind 1", relation="treats")
    assert page.locator("h1").inner_text() == "drug Z treats ?"
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
    assert page.locator("h1").inner_text() == "? treats disease D"
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


# What goes wrong.


def test_an_unknown_name_is_said_with_others_to_choose(opened):
    page = settled(opened())
    page.get_by_label("Entity", exact=True).fill("drug CC")
    page.get_by_role("button", name="Ask").click()
    page.locator(".problem").wait_for()
    assert "entity is called 'drug CC'" in page.locator(".problem").inner_text()
    assert page.evaluate("document.activeElement.id") == "answers-title"
    page.locator(".meant").get_by_role("button", name="drug C").click()
    asked(page, entity="d2")


def test_an_unknown_relation_is_said_too(opened):
    page = opened("/?entity=d2&relation=treat&side=tail")
    page.locator(".meant").get_by_role("button", name="treats").click()
    asked(page, entity="d2", relation="treats")


def test_a_server_that_is_gone_is_said(opened):
    page = asked(opened(QUESTION))
    page.route("**/api/**", lambda route: route.abort())
    page.locator("#sides").get_by_text("? treats drug C").click()
    page.locator(".problem").wait_for()
    assert "does not answer" in page.locator(".problem").inner_text()
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").click()
    asked(page, side="head")


def test_markup_in_a_text_is_shown_and_never_run(opened):
    page = asked(opened("/?entity=x1&relation=treats&side=head"))
    assert page.locator("#anchor-text").inner_text() == HOSTILE
    page.locator(".why").first.click()
    assert HOSTILE in page.locator("blockquote").first.inner_text()
    page.get_by_label("Entity", exact=True).fill("disease B")
    page.get_by_role("option").first.wait_for()
    assert HOSTILE in page.get_by_role("option").first.inner_text()
    page.goto(page.url.split("?")[0] + "?" + urlencode({"name": HOSTILE, "relation": "treats", "side": "tail"}))
    asked(page)
    assert page.locator("h1").inner_text() == f"{HOSTILE} treats ?"
    assert page.evaluate("window.wasRun") is None
    assert page.locator("main img").count() == 0


def test_a_token_is_asked_for_once(opened, run):
    with served(run, token=TOKEN) as origin:
        page = opened(QUESTION, origin=origin)
        page.locator("#token").fill("another one")
        page.keyboard.press("Enter")
        page.get_by_text("was not accepted").wait_for()
        page.locator("#token").fill(TOKEN)
        page.keyboard.press("Enter")
        asked(page)
        assert TOKEN not in page.url
        page.reload()
        asked(page)


# For everyone.


def test_the_keyboard_alone_is_enough(opened):
    page = settled(opened())
    for _ in range(20):
        if page.evaluate("document.activeElement.id") == "entity":
            break
        page.keyboard.press("Tab")
    page.keyboard.type("drug C")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    active = page.locator("#entity").get_attribute("aria-activedescendant")
    assert "drug C" in page.locator(f"#{active}").inner_text()
    page.keyboard.press("Enter")
    asked(page, entity="d2")
    assert page.locator("#entity").get_attribute("aria-expanded") == "false"
    assert "10 answers" in page.locator("#status").inner_text()
    for _ in range(40):
        if "why" in page.evaluate("document.activeElement.className"):
            break
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.locator(".reasons:visible").count() == 1
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")  # the answer's name
    page.wait_for_url(lambda url: "entity=d2&" not in url)
    asked(page)
    assert page.evaluate("document.activeElement.id") == "answers-title"


def test_the_theme_is_the_machine_s_until_one_is_chosen(opened):
    page = settled(opened(theme="dark"))
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Light theme").click()
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    settled(page)
    assert page.evaluate(paper) == light


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_fits_and_everyone_can_read_it(opened, theme, size):
    """Keeps pictures of what it looks like; no horizontal scroll, nothing serious for axe, in any state."""
    shape = "wide" if size is WIDE else "narrow"
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = settled(opened(size=size, theme=theme))
    looked_at(page, f"start-{theme}-{shape}")
    page.goto(page.url + QUESTION[1:])
    asked(page).locator(".why").first.click()
    looked_at(page, f"answers-{theme}-{shape}")
    page.get_by_label("Entity", exact=True).fill("dis")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    looked_at(page, f"search-{theme}-{shape}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_read_what_went_wrong(opened, theme):
    page = opened("/?entity=drug+CC", theme=theme, size=NARROW)
    page.locator(".problem").wait_for()
    looked_at(settled(page), f"problem-{theme}-narrow")


def looked_at(page, name):
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = axe.Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
