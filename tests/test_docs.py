"""Every code block of the documents runs, and so does every example in a docstring."""

import doctest
import importlib
import inspect
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cascader
from cascader.errors import MissingExtraError

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Set up the machine or call the tests themselves.
NOT_RUN_HERE = ("make", "git", "pip", "python bench")


def blocks(language):
    return [
        pytest.param(block, id=f"{path.name}-{number}")
        for path in DOCUMENTS
        for number, (found, block) in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")), start=1)
        if found == language
    ]


def modules():
    return ["cascader", *(module.name for module in pkgutil.walk_packages(cascader.__path__, "cascader."))]


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_examples_in_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    """An empty folder with the files that the documents speak of."""
    try:
        cascader.load_graph("wordnet")
    except MissingExtraError as error:
        pytest.skip(str(error))
    rows = [f"drug {i}\ttreats\tdisease {j}" for i in range(6) for j in range(5)]
    (tmp_path / "my-graph.tsv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks(block, somewhere):
    finished = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("block", blocks("bash"))
def test_commands(block, somewhere):
    for line in block.splitlines():
        command = line.split(" #")[0].strip()
        if command and not command.startswith(NOT_RUN_HERE):
            words = shlex.split(command)
            assert words[0] == "cascader"
            finished = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
            assert finished.returncode == 0, f"{command}\n{finished.stderr}"


def test_the_api_page_is_what_the_docstrings_give():
    made = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["render"]()
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == made, "run: python docs/make_api.py"


@pytest.mark.parametrize("name", [name for name in cascader.__all__ if name != "__version__"])
def test_every_public_name_stands_on_the_api_page_with_its_parameters(name):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    (entry,) = re.findall(rf"^### {name}\n(.*?)(?=^##)", page + "\n##", re.MULTILINE | re.DOTALL)
    thing = getattr(cascader, name)
    takes_any = name == "Side" or name == "Scorer" or isinstance(thing, type) and issubclass(thing, Exception)
    for parameter in () if takes_any else inspect.signature(thing).parameters.values():
        assert re.search(rf"\b{parameter.name}: ", entry), parameter.name


#: A word for types, what `compare` gives, what the example of `Run` shows, and errors.
WITHOUT_EXAMPLE = {"Side", "Comparison", "load_run", "__version__"}


@pytest.mark.parametrize("name", [name for name in cascader.__all__ if name not in WITHOUT_EXAMPLE])
def test_every_public_name_has_an_example(name):
    thing = getattr(cascader, name)
    is_error = isinstance(thing, type) and issubclass(thing, cascader.CascaderError)
    assert ">>>" in inspect.getdoc(thing) or (is_error and thing is not cascader.CascaderError)


def test_what_the_paper_page_names_is_there():
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    sources = {path.relative_to(ROOT / "src" / "cascader").as_posix(): path for path in ROOT.glob("src/cascader/**/*")}
    named = re.findall(r"`([\w/]+\.(?:py|toml))(?:: (\w+))?`", page)
    assert len(named) > 30
    for file, name in named:
        path = next(path for place, path in sources.items() if place == file or place.endswith(f"/{file}"))
        assert not name or re.search(rf"^((def|class) )?{name}\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            f"{file}: {name}"
        )
