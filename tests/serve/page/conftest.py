"""A small run with three tiers behind a server, and a browser to open its page in: all made once for this folder."""

import shutil
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

import cascader
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.models.embeddings import ComplEx
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.models.text import CrossEncoder, DualEncoder
from tests.conftest import accept_every_gain
from tests.serve.conftest import served

#: The first is the same engine without windows, tabs and menus: a page costs a third.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
HOSTILE = "<img src=x onerror='wasRun=1'>"  # short: the language models read only the beginning of a text
#: What would run if a text were taken for markup, an attribute, a script, a style or an address.
PAYLOADS = (
    HOSTILE,
    '"><script>wasRun=1</script><p title="',
    "' onmouseover='wasRun=1' autofocus onfocus='wasRun=1",
    "</title></textarea></style><svg onload=wasRun=1>",
    "javascript:wasRun=1//",
    "<iframe srcdoc='<script>parent.wasRun=1</script>'>",
    "${wasRun=1}{{wasRun=1}}<base href=//evil.example/>",
    "\u202e<b>\u2028wasRun\u0085=1",
)
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
QUESTION = "/?entity=d2&relation=treats&side=tail"


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


@pytest.fixture(scope="package")
def drugs_run(tmp_path_factory, tiny_model):
    kg, folder = drugs(), tmp_path_factory.mktemp("page") / "run"
    kge = ComplEx(dim=4, epochs=2).fit(kg)
    dual = DualEncoder(base=tiny_model, dim=8, hidden=16, epochs=30, learning_rate=0.01).fit(kg)
    cross = CrossEncoder(base=tiny_model, split_layer=0, rounds=5, queries_per_round=64, learning_rate=1e-3).fit(kg)
    run = cascader.save_run(folder, kg, {"kge": kge, "dual": dual, "cross": cross})
    run.tuned()
    accept_every_gain(folder)
    run = cascader.load_run(folder)
    (folder / "report").mkdir()
    (folder / "report" / "report.html").write_text("<!DOCTYPE html><title>Report: drugs</title>")
    return run


@pytest.fixture(scope="package")
def page_address(drugs_run):
    with served(drugs_run) as address:
        yield address


@pytest.fixture(scope="package")
def reasoned_address(tmp_path_factory):
    """The same graph, with markup for the name of a disease, answered by tiers that give reasons."""
    kg = drugs()
    entities = tuple(entity._replace(name=HOSTILE) if entity.id == "x1" else entity for entity in kg.entities)
    kg = replace(kg, entities=entities)
    models = {"plausibility": Plausibility(), "rules": Rules(), "similarity": Similarity()}
    folder = tmp_path_factory.mktemp("reasons") / "run"
    with served(cascader.save_run(folder, kg, {name: model.fit(kg) for name, model in models.items()})) as address:
        yield address


@pytest.fixture(scope="package")
def hostile_run(tmp_path_factory):
    """A graph in which everything has markup for a name, with its report."""
    facts = [(f"d{a}", "r", f"x{b}") for a in range(8) for b in range(8) if (a + b) % 3]
    kg = KnowledgeGraph.from_triples(facts[:-10], valid=facts[-10:-5], test=facts[-5:], name=HOSTILE)
    entities = tuple(
        Entity(entity.id, f"{entity.id[0]}{PAYLOADS[int(entity.id[1:])]}", f"{PAYLOADS[int(entity.id[1:])]} text")
        for entity in kg.entities
    )
    kg = replace(kg, entities=entities, relations=(Relation("r", f"r{PAYLOADS[1]}"),))
    models = {"plausibility": Plausibility(), "rules": Rules(), "similarity": Similarity()}
    folder = tmp_path_factory.mktemp("hostile") / "run"
    run = cascader.save_run(folder, kg, {name: model.fit(kg) for name, model in models.items()})
    run.tuned()
    run.report(folder / "report")
    return run


@pytest.fixture(scope="package")
def hostile_address(hostile_run):
    with served(hostile_run) as address:
        yield address


# A browser.


@pytest.fixture(scope="module")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs a browser driver: pip install playwright")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser was found: none of {', '.join(BROWSERS)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, page_address):
    """Opens a page at a path; in the end, no script may have failed and nothing may have come from elsewhere."""
    contexts, failures = [], []

    def opened(path="/", *, size=WIDE, theme="light", origin=page_address):
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
