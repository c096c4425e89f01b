"""Every code block of the documents runs: those of the README in processes of their own, the others in this one."""

import io
import re
import subprocess
import sys

import pytest

from cascader.cli import main
from tests.docs.blocks import GUIDES, README, ROOT, TUTORIAL, beside_blocks, blocks, commands, found_in
from tests.processes import finished

#: They train the default language model, or on all of WordNet.
SLOW = ("answers.md", "embeddings.md", "language-models.md", "report.md", "reproduction.md", "scale.md")

#: Each of their blocks stands on its own; those of the tutorial go on from each other.
ALONE = [path for path in GUIDES if path != TUTORIAL]


def run_as_a_shell_does(given):
    """Run commands, in one process, because loading the libraries takes longer than what they do."""
    for words in given:
        sys.argv = words
        with pytest.raises(SystemExit) as stopped:
            main()
        if stopped.value.code:
            sys.exit(f"{words} ended with {stopped.value.code}")


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python", [README]))
def test_the_python_of_the_readme_runs(block, somewhere, start_from_fitted):
    start_from_fitted(block)
    python = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True)
    assert python.returncode == 0, python.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("bash", [README]))
def test_the_commands_of_the_readme_run(block, somewhere, start_from_fitted):
    start_from_fitted(block)
    assert all(words[0] == "cascader" for words in commands(block))
    code, printed = finished(run_as_a_shell_does, commands(block))
    assert code == 0, printed


@pytest.mark.parametrize("block", blocks("python", ALONE, SLOW))
def test_python_blocks(block, somewhere):
    exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", blocks("bash", ALONE, SLOW))
def test_commands(block, somewhere, start_from_fitted, monkeypatch, capsys):
    start_from_fitted(block)
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\nr\nq\n"))  # what is typed during a review
    run_commands(block, monkeypatch, capsys)


def run_commands(block, monkeypatch, capsys):
    """Run them in this process, and give what they printed."""
    printed = ""
    for words in commands(block):
        assert words[0] == "cascader"
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        assert stopped.value.code == 0, f"{words}\n{captured.err}"
        printed += captured.out + captured.err
    return printed


@pytest.mark.slow
def test_the_tutorial_runs_from_top_to_bottom_and_finds_what_it_says(somewhere, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("r\nr\nr\na\nq\n"))  # what is typed during the review
    printed = []
    for _, (language, block) in found_in(TUTORIAL):
        if language == "python":
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
        else:
            printed.append(run_commands(block, monkeypatch, capsys))
    checked, _, asked = printed[:3]
    assert re.search(r"\b164\s+21\s+21\b", checked)
    assert re.search(r"1 +Switzerland", asked) and "Switzerland borders Germany" in asked
    links = (somewhere / "links.tsv").read_text()
    for link in ("Austria\tborders\tGermany", "Belgium\tis in\tSchengen", "Austria\tis in\tNATO"):
        assert link in links
    assert "accepted" in (somewhere / "decisions.tsv").read_text() and "Schengen (known)" in printed[-1]


#: Drawings; examples from docstrings, which test_api_page.py runs; what needs a server, a container or long training.
RUN_ELSEWHERE = {
    "api.md": {"text", "pycon"},
    "containers.md": {"sh"},
    "design.md": {""},
    "results.md": {""},
    "scale.md": {"sh"},
    "serve.md": {"nginx", "sh"},
}


@pytest.mark.parametrize("path", [README, *GUIDES], ids=lambda path: path.name)
def test_no_block_is_left_out(path):
    languages = {language for _, (language, _) in found_in(path)}
    assert languages <= {"bash", "python"} | RUN_ELSEWHERE.get(path.name, set())


def test_beside_every_block_about_clusters_that_is_not_run_it_says_so():
    for before, after in beside_blocks("sh", ROOT / "docs" / "scale.md"):
        assert "not run by" in before or "not run by" in after, before
