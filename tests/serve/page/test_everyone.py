"""The page for everyone: what it says when something goes wrong, by keyboard, in every theme and size."""

from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.serve.conftest import served
from tests.serve.page.conftest import HOSTILE, NARROW, PAYLOADS, QUESTION, WIDE, asked, settled

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

PICTURES = Path(__file__).parents[3] / "artefacts" / "page"
pytestmark = pytest.mark.slow  # in a browser
TOKEN = "ein schlüssel der tests 🔑"  # noqa: S105


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
    assert page.locator("#answers-title").inner_text() == f"{HOSTILE} treats ?"
    assert page.evaluate("window.wasRun") is None
    assert page.locator("main img").count() == 0


def test_markup_in_the_facts_of_a_reason_is_shown_and_never_run(opened, reasoned_address):
    page = asked(opened("/?entity=x1&relation=treats&side=head&known=1", origin=reasoned_address))
    for why in page.locator(".why").all():
        why.click()
    assert HOSTILE in page.locator(".facts-of").first.inner_text()
    assert page.evaluate("window.wasRun") is None
    assert page.locator("main img").count() == 0
    fact = page.locator(".facts-of a").first
    entity = parse_qs(urlsplit(fact.get_attribute("href")).query)["entity"][0]
    fact.click()
    asked(page, entity=entity, relation="treats")


def harmless(page, *shown):
    """No script has run, no element was made of a text, and each text stands there as it is."""
    for text in shown:
        assert text in page.evaluate("document.body.innerText + document.title"), text
    assert page.evaluate("window.wasRun") is None
    assert page.locator("body script, body img, body iframe, body object, [onerror], [onload], base").count() == 0
    assert page.locator("a[href^='javascript:' i]").count() == 0


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_where_every_name_is_markup_it_is_shown_everywhere_and_never_run(opened, hostile_address, number):
    """In the title, the examples, the search, answers, traces, reasons, suggestions, and the list of relations."""
    payload = PAYLOADS[number]
    page = settled(opened(origin=hostile_address))
    harmless(page)
    page.get_by_label("Entity", exact=True).fill(payload[:20])
    page.get_by_role("option").first.wait_for()
    harmless(page)
    page.goto(
        f"{hostile_address}/?{urlencode({'entity': f'd{number}', 'relation': 'r', 'side': 'tail', 'known': '1'})}"
    )
    asked(page)
    for why in page.locator(".why").all():
        why.click()
    shown = " ".join(page.locator("#answers-title").inner_text().split())
    assert " ".join(f"d{payload}".split()) in shown
    assert payload.split()[0] in page.title()
    harmless(page)
    page.goto(f"{hostile_address}/?{urlencode({'entity': f'd{payload} ', 'relation': f'rr{payload}'})}")
    page.locator(".problem").wait_for()
    harmless(page)
    page.goto(f"{hostile_address}/?{urlencode({'entity': f'd{payload}dd', 'relation': 'r'})}")
    page.locator(".meant button").first.wait_for()
    harmless(page)


def test_a_report_of_names_that_are_markup_runs_none_of_it(opened, hostile_address, chromium, hostile_run):
    page = opened("/report", origin=hostile_address)
    page.locator("h1").first.wait_for()
    harmless(page)
    assert any(payload in page.locator("body").inner_text() for payload in PAYLOADS)
    assert page.evaluate("[location.origin, self.origin]") == [hostile_address, "null"]
    link = page.locator("nav a").last
    link.click()
    page.wait_for_url(f"{hostile_address}/report{link.get_attribute('href')}")
    alone = chromium.new_page()  # as a file, where no header forbids scripts
    alone.goto((hostile_run.folder.path / "report" / "report.html").as_uri())
    harmless(alone)
    alone.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_reasons_fit_and_everyone_can_read_them(opened, reasoned_address, theme, size):
    page = asked(opened(f"{QUESTION}&known=1", size=size, theme=theme, origin=reasoned_address))
    page.locator(".why").first.click()
    words = page.locator(".grounds > li > p").all_inner_texts()
    response = page.request.post(
        f"{reasoned_address}/api/answer", data={"entity": "d2", "relation": "treats", "with_known": True, "why": True}
    )
    assert words == [reason["words"] for reason in response.json()["answers"][0]["reasons"]] != []
    PICTURES.mkdir(parents=True, exist_ok=True)
    looked_at(page, f"reasons-{theme}-{'wide' if size is WIDE else 'narrow'}")


def test_a_token_is_asked_for_once(opened, drugs_run):
    with served(drugs_run, token=TOKEN) as origin:
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
