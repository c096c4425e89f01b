"""The review tab, in a browser: by keyboard, over a reload, with what the next answers make of it."""

import shutil
from pathlib import Path

import pytest

import cascader
from tests.serve.conftest import served
from tests.serve.page.conftest import HOSTILE, NARROW, WIDE, asked, drugs, names
from tests.serve.page.test_everyone import PICTURES, harmless, looked_at

pytestmark = pytest.mark.slow  # in a browser
KEYS = ["a", "r", "a", "s", "a", "r", "a", "r", "s", "a"] * 2


@pytest.fixture(scope="module")
def reviewed_folder(tmp_path_factory):
    """A run of tiers that give reasons, with markup for the name of a disease."""
    kg = drugs()
    entities = tuple(entity._replace(name=HOSTILE) if entity.id == "x1" else entity for entity in kg.entities)
    kg = cascader.KnowledgeGraph(kg.name, entities, kg.relations, kg.train, kg.valid, kg.test)
    models = {"plausibility": cascader.Plausibility(), "rules": cascader.Rules(), "similarity": cascader.Similarity()}
    folder = tmp_path_factory.mktemp("reviewed") / "run"
    run = cascader.save_run(folder, kg, {name: model.fit(kg) for name, model in models.items()})
    run.tuned()
    run.predictor()
    return folder


@pytest.fixture
def folder(reviewed_folder, tmp_path):
    return shutil.copytree(reviewed_folder, tmp_path / "run")


@pytest.fixture
def address(folder):
    with served(cascader.load_run(folder)) as address:
        yield address


def in_focus(page):
    return " ".join(page.locator("#link-title").inner_text().split())


def pressed(page, key):
    """Press a key, and wait until another link is in focus."""
    before = in_focus(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.getElementById('link-title').innerText.split(/\\s+/).join(' ').trim() !== before",
        arg=before,
    )
    return before


def reviewing(page):
    page.locator("#queue li").first.wait_for()
    return page


def test_twenty_decisions_by_keyboard_a_reload_the_export_and_other_answers(opened, address, folder):
    page = opened("/", origin=address)
    page.get_by_role("link", name="Review").click()
    reviewing(page)
    page.get_by_label("Reviewer").fill("ann")
    page.get_by_label("Reviewer").press("Tab")
    first = page.request.get(f"{address}/api/review").json()["links"][0]
    question = f"/?entity={first['head']['id']}&relation={first['relation']['id']}&side=tail"
    before = names(asked(opened(question, origin=address)))
    decided = {}
    for key in KEYS:
        decided[pressed(page, key)] = key
    assert len(decided) == 20
    page.wait_for_function("() => document.getElementById('tally').innerText.includes('10 accepted')")
    assert "10 accepted · 6 rejected · 4 skipped by you" in page.locator("#tally").inner_text()
    here = in_focus(page)
    assert here not in decided
    page.reload()
    reviewing(page)
    assert in_focus(page) == here
    assert page.get_by_label("Reviewer").input_value() == "ann"
    kept = cascader.load_run(folder).review.decisions
    assert (len(kept.accepted), len(kept.rejected), kept.skipped_by("ann")) == (10, 6, 4)
    with page.expect_download() as table:
        page.get_by_role("button", name="TSV").click()
    rows = [row.split("\t") for row in Path(table.value.path()).read_text().splitlines()[1:]]
    words = {f"{row[6]} {row[7]} {row[8]}": row[3] for row in rows}
    meant = {"a": "accepted", "r": "rejected"}
    assert words == {link: meant[key] for link, key in decided.items() if key in meant}
    with page.expect_download() as facts:
        page.get_by_role("button", name="N-Triples").click()
    assert len(Path(facts.value.path()).read_text().splitlines()) == 10
    after = names(asked(opened(question, origin=address)))
    assert first["tail"]["name"] in before
    assert first["tail"]["name"] not in after
    page.get_by_role("button", name="Make the list again").click()
    page.wait_for_function("() => document.getElementById('renew').hidden")
    assert not set(decided) & {link for link in page.locator("#queue .words").all_inner_texts()}


def test_undo_brings_a_link_back_also_after_a_reload(opened, address):
    page = reviewing(opened("/?review=1", origin=address))
    first, second = pressed(page, "a"), pressed(page, "r")
    page.reload()
    reviewing(page)
    pressed(page, "u")
    assert in_focus(page) == second
    assert "no longer rejected" in page.locator("#last").inner_text()
    pressed(page, "u")
    assert in_focus(page) == first
    page.keyboard.press("u")
    page.get_by_text("There is nothing to undo.").wait_for()
    assert "0 accepted · 0 rejected" in page.locator("#tally").inner_text()


def test_keys_typed_into_a_field_decide_nothing(opened, address):
    page = reviewing(opened("/?review=1", origin=address))
    page.get_by_label("Reviewer").press_sequentially("sara")
    assert "0 accepted · 0 rejected · 0 skipped" in page.locator("#tally").inner_text()


def test_a_relation_and_a_probability_choose_the_links(opened, address):
    page = reviewing(opened("/?review=1", origin=address))
    page.locator("#of-relation").select_option("prescribes")
    page.wait_for_url("**relation=prescribes**")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#queue .relation')].every(e => e.innerText === 'prescribes')"
    )
    page.locator("#of-relation").select_option("")
    page.locator("#least").select_option("0.2")
    page.wait_for_url("**least=0.2**")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#queue .number')].every(e => parseFloat(e.innerText) >= 20)"
    )
    chosen = page.locator("#queue button").nth(2)
    words = chosen.locator(".words").inner_text()
    chosen.click()
    assert in_focus(page) == words
    assert page.evaluate("document.activeElement.id") == "link-title"
    page.reload()
    reviewing(page)
    assert in_focus(page) == words


def test_a_reason_is_drawn_as_a_graph_whose_entities_lead_to_questions(opened, address):
    page = reviewing(opened("/?review=1", origin=address))
    page.locator(".fact-graph").first.wait_for()
    drawing = page.locator(".fact-graph").first
    facts = page.locator(".grounds > li", has=page.locator(".fact-graph")).first.locator(".facts-of li")
    assert drawing.locator("line.fact").count() == facts.count() > 0
    assert drawing.locator(".proposed").count() == 1
    drawn = drawing.locator(".entity title").all_text_contents()
    link = in_focus(page)
    assert len(drawn) == len(set(drawn)) >= 2
    assert sum(name in link for name in drawn) == 2
    here = page.url
    drawing.locator("a.entity").last.click()
    asked(page)
    assert page.locator("h1").first.inner_text().count("?") == 1
    page.go_back()
    reviewing(page)
    assert (page.url, in_focus(page)) == (here, link)


def test_two_reviewers_at_once_see_what_the_other_decides(opened, address):
    ann, bob = (reviewing(opened("/?review=1", origin=address)) for _ in range(2))
    bob.get_by_label("Reviewer").fill("bob")
    bob.get_by_label("Reviewer").press("Tab")
    decided = [pressed(ann, "a"), pressed(ann, "a"), pressed(ann, "r")]
    pressed(bob, "s")
    bob.wait_for_function("() => document.getElementById('tally').innerText.includes('2 accepted · 1 rejected')")
    # The list is asked for again after the counts are shown.
    listed = "[...document.querySelectorAll('#queue .words')].map(each => each.innerText)"
    bob.wait_for_function(f"decided => !decided.some(each => {listed}.includes(each))", arg=decided)


def test_a_server_that_is_read_only_says_so(opened, folder):
    with served(cascader.load_run(folder), read_only=True) as origin:
        page = reviewing(opened("/?review=1", origin=origin))
        assert "read-only" in page.locator("#review-note").inner_text()
        assert page.locator("#keys button").first.is_disabled()
        page.keyboard.press("a")
        assert "0 accepted" in page.locator("#tally").inner_text()


def test_markup_in_names_is_shown_and_never_run(opened, address):
    page = reviewing(opened("/?review=1", origin=address))
    row = page.locator("#queue button", has_text=HOSTILE).first
    row.click()
    page.locator(".fact-graph").first.wait_for()
    harmless(page, HOSTILE)


def test_a_list_that_is_being_made_says_how_far_it_is(opened, address):
    making = {"is_ready": False, "questions": 3, "question_count": 20}
    page = opened("/", origin=address)
    page.route("**/api/review?*", lambda route: route.fulfill(json=making))
    page.get_by_role("link", name="Review").click()
    page.get_by_text("3 of 20 questions asked.").wait_for()
    assert not page.locator("#keys").is_visible()
    page.unroute("**/api/review?*")
    reviewing(page)


def test_a_server_that_is_gone_is_said_and_nothing_is_lost(opened, address, folder):
    page = opened("/", origin=address)
    page.route("**/api/review/decide", lambda route: route.abort())
    page.get_by_role("link", name="Review").click()
    link = in_focus(reviewing(page))
    page.keyboard.press("a")
    page.locator("#last", has_text="The server does not answer.").wait_for()
    assert in_focus(page) == link
    page.unroute("**/api/review/decide")
    pressed(page, "a")
    assert len(cascader.load_run(folder).review.decisions.accepted) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_fits_and_everyone_can_read_it(opened, address, theme, size):
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = reviewing(opened("/?review=1", size=size, theme=theme, origin=address))
    page.locator(".fact-graph").first.wait_for()
    looked_at(page, f"review-{theme}-{'wide' if size is WIDE else 'narrow'}")
