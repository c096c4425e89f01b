"""The documents as a site: no warning, every link leads somewhere, and nothing is loaded from elsewhere."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.blocks import GUIDES, ROOT

SITE = ROOT / "build" / "site"
SHOWN = [*GUIDES, *ROOT.glob("*.md")]


class Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.path, self.ids, self.links, self.loaded = path, set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "source", "iframe"):
            self.loaded += [given[name] for name in ("href", "src") if name in given]


@pytest.fixture(scope="module")
def build():
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("zensical is not installed: pip install --editable '.[dev]'")
    return subprocess.run([sys.executable, "docs/make_site.py"], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def pages(build):
    return {path: Page(path) for path in SITE.rglob("*.html") if path.name != "404.html"}  # its links are absolute


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(build):
    assert build.returncode == 0, build.stdout + build.stderr
    assert "No issues found" in build.stdout + build.stderr


@pytest.mark.slow
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(pages):
    assert len(pages) >= len(SHOWN)
    lost = [
        f"{page.path.relative_to(SITE)}: {link}"
        for page in pages.values()
        for link in page.links + page.loaded
        if leads_nowhere(page, link, pages)
    ]
    assert not lost


def leads_nowhere(page, link, pages):
    address = urlsplit(link)
    if address.scheme or link in (".", ".."):
        return False
    target = (page.path.parent / unquote(address.path)).resolve() if address.path else page.path
    if not target.is_file():
        return not (target / "index.html").is_file()
    return bool(address.fragment) and target in pages and unquote(address.fragment) not in pages[target].ids


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(pages):
    foreign = {address for page in pages.values() for address in page.loaded if urlsplit(address).netloc}
    assert not foreign


def test_every_document_has_its_place_in_the_navigation():
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    missing = {path.relative_to(ROOT).as_posix() for path in SHOWN} ^ set(named(navigation))
    assert not missing, f"{sorted(missing)}: the nav of zensical.toml and the documents differ"


def named(item):
    """The documents that a part of the navigation names."""
    if isinstance(item, str):
        return [item]
    return [path for part in (item.values() if isinstance(item, dict) else item) for path in named(part)]


def test_every_guide_is_in_the_index_of_the_documents():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in GUIDES if path.name != "README.md" and f"({path.name})" not in index] == []


def test_every_environment_variable_is_in_the_list():
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/cascader/**/*.py"))
    listed = (ROOT / "docs" / "your-own-graph.md").read_text(encoding="utf-8").split("## Environment variables")[1]
    rows = re.findall(r"^\| `(CASCADER_[A-Z_]+)` \|", listed, re.MULTILINE)
    assert sorted(rows) == sorted(set(re.findall(r'"(CASCADER_[A-Z_]+)"', sources)))
