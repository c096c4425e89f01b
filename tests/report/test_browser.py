"""The report in a real browser: whatever the names of a graph are, no script of theirs runs."""

import json

import pytest

from cascader.report import write_report
from tests.report.conftest import EVIL
from tests.serve.page.conftest import chromium  # noqa: F401 - a fixture

HOSTILE = (
    "<script>wasRun=1</script>",
    "<img src=x onerror=wasRun=1>",
    "\"'><svg onload=wasRun=1>",
    "</title></style></script></svg><script>wasRun=1</script>",
    "]]>--><iframe srcdoc='<script>parent.wasRun=1</script>'></iframe>",
)


@pytest.fixture
def opened(chromium):  # noqa: F811
    """Opens a file; returns the page and the addresses that it has asked for."""
    context = chromium.new_context()

    def opened(path):
        page, asked = context.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page, asked

    yield opened
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_script_of_a_name_runs_in_the_report(analyses, tmp_path, opened, hostile):
    as_json, evil = json.dumps(analyses), json.dumps(EVIL)[1:-1]
    assert evil in as_json
    path = write_report(tmp_path, json.loads(as_json.replace(evil, json.dumps(hostile)[1:-1])))
    page, asked = opened(path)
    assert hostile[:10] in page.locator("body").inner_text()
    assert page.evaluate("typeof wasRun") == "undefined"
    assert asked == [path.as_uri()]


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_as_markup_it_would_run(tmp_path, opened, hostile):
    path = tmp_path / "page.html"
    path.write_text(f"<!DOCTYPE html><title>x</title><p title='{hostile}'>{hostile}</p>")
    page, _ = opened(path)
    page.wait_for_function("typeof wasRun !== 'undefined'")
