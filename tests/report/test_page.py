"""The page: one file, safe whatever the graph's names are, and the same bytes every time."""

import csv
import json
import re
from html.parser import HTMLParser

import pytest

from cascader.report import analyze, write_report
from cascader.report.report import draw
from cascader.report.section import Chart, Series
from cascader.tuning import TuningResult
from tests.report.conftest import EVIL


class Page(HTMLParser):
    """Every element with its attributes, and all texts; elements must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":  # which has no end
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]


@pytest.fixture(scope="module")
def path(analyses, tmp_path_factory):
    return write_report(tmp_path_factory.mktemp("report") / "new" / "folder", analyses)


@pytest.fixture(scope="module")
def html(path):
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_every_table_and_every_chart_is_a_csv_file_too(page, path):
    files = {
        file.stem: list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
        for file in (path.parent / "tables").iterdir()
    }
    assert len([name for name in files if name.endswith("-chart")]) == len(page.named("svg"))
    assert len(files) == len(page.named("svg")) + len(page.named("table"))
    for header, *rows in files.values():
        assert rows and {len(row) for row in rows} == {len(header)}


def test_tables_of_an_earlier_report_are_gone_and_the_users_own_files_stay(analyses, tmp_path):
    write_report(tmp_path, analyses)
    own = tmp_path / "tables" / "thesis.csv"
    own.write_text("mine\n")
    write_report(tmp_path, {name: numbers for name, numbers in analyses.items() if name != "margins"})
    files = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {"thesis.csv", "tiers.csv"} <= files and not {"margins.csv", "margins-chart.csv"} & files
    assert own.read_text() == "mine\n"


@pytest.mark.parametrize("found", ["not JSON", "[]", '{"tables": 3}', '{"tables": ["../mine", "/mine", 3, null]}'])
def test_a_report_json_that_is_not_ours_removes_nothing(analyses, tmp_path, found):
    (tmp_path / "report.json").write_text(found)
    (tmp_path / "mine.csv").write_text("mine\n")
    write_report(tmp_path, analyses)
    assert (tmp_path / "mine.csv").read_text() == "mine\n"


def test_the_numbers_stand_beside_the_page(analyses, path):
    assert path.name == "report.html"
    tables = sorted(file.stem for file in (path.parent / "tables").iterdir())
    saved = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert {**saved, "tables": sorted(saved["tables"])} == {**analyses, "tables": tables}


def test_the_page_needs_no_other_file_and_no_script(html, page):
    assert "//" not in html
    assert "@import" not in html
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "img", "image", "iframe", "object", "embed"})
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    targets = [value for _, found in page.elements for name, value in found.items() if name in ("href", "src")]
    assert targets
    assert all(target.startswith("#") for target in targets)


def test_names_of_the_graph_are_shown_and_never_obeyed(html, page):
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $x$ &amp; ümlaut" in html
    assert any(EVIL in text for text in page.texts)


def test_no_two_elements_share_an_id_and_every_reference_is_met(html, page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    found = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)|aria-(?:labelled|described)by="([^"]+)"', html)
    assert {name for names in found for name in names if name} <= set(ids)


def test_every_figure_has_a_title_and_a_caption(page):
    charts = page.named("svg")
    assert len(charts) >= 6
    assert len(page.named("figcaption")) == len(charts)
    assert all(chart["role"] == "img" and chart["aria-labelledby"] for chart in charts)


def test_the_contents_lead_to_every_section(page):
    links = [attributes["href"].removeprefix("#") for attributes in page.named("a")]
    assert links == [attributes["id"] for attributes in page.named("section")]
    assert len(links) == 11


def test_the_reliability_diagram_has_its_diagonal_its_counts_and_its_errors(analyses, html):
    start = html.index('<section id="reliability">')
    section = html[start : html.index("</section>", start)]
    assert "Are the probabilities right?" in section
    assert "as it should be" in section
    assert "answers per marker" in section
    for name in ("error_before", "error_after"):
        assert f"{analyses['reliability'][name]:.3f}" in section
    assert section.count("<tr>") == 1 + len(analyses["reliability"]["after"])


def test_the_same_numbers_give_the_same_bytes_even_if_they_come_from_the_file(path, html, tmp_path):
    read_back = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert write_report(tmp_path, read_back).read_text(encoding="utf-8") == html


def test_one_tier_that_was_never_measured_still_gives_a_page(material, tmp_path):
    kge, tuned = {"kge": material["scorers"]["kge"]}, TuningResult(material["tuned"].trials[:1])
    found = analyze(material["kg"], kge, tuned, [], {})
    page = Page(write_report(tmp_path, found).read_text(encoding="utf-8"))
    assert any("Skipped: The run has only one tier" in text for text in page.texts)


def test_a_chart_keeps_its_texts_and_takes_its_colours_from_the_page():
    series = [Series("five $ <b>", [1, 2], [3, 4], 0, spread=[(2, 4), (3, 5)]), Series("", [1], [3], None, "marks")]
    svg = draw(Chart("c", "a <title>", "x", "y", series))
    assert "five $ &lt;b&gt;" in svg
    assert "a &lt;title&gt;</title>" in svg
    assert "var(--series-0)" in svg
    assert "currentColor" in svg
    assert not re.search(r"(fill|stroke): #", svg)


def test_a_name_that_no_font_has_is_drawn_without_a_warning():
    assert "漢字" in draw(Chart("c", "t", "x", "y", [Series("漢字", [1], [1], 0), Series("b", [1], [1], 1)]))
