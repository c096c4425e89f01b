"""Every example in a docstring runs, and the pages about the code say what the code says."""

import doctest
import importlib
import inspect
import pkgutil
import re
import runpy

import pytest

import cascader
from tests.docs.blocks import ROOT


def modules():
    return ["cascader", *(module.name for module in pkgutil.walk_packages(cascader.__path__, "cascader."))]


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_examples_in_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_the_api_page_is_what_the_docstrings_give():
    made = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["render"]()
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == made, "run: python docs/make_api.py"


@pytest.mark.parametrize("name", [name for name in cascader.__all__ if name != "__version__"])
def test_every_public_name_stands_on_the_api_page_with_its_parameters(name):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    (entry,) = re.findall(rf"^### {name}\n(.*?)(?=^##)", page + "\n##", re.MULTILINE | re.DOTALL)
    thing = getattr(cascader, name)
    takes_any = name in ("Side", "Scorer", "Model") or isinstance(thing, type) and issubclass(thing, Exception)
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
        paths = [path for place, path in sources.items() if place == file or place.endswith(f"/{file}")]
        assert paths, f"docs/paper.md names {file}, and src/cascader has no such file"
        path = paths[0]
        assert not name or re.search(rf"^((def|class) )?{name}\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            f"{file}: {name}"
        )
