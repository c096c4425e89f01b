"""What holds for the package as a whole: it is light to import, and its public names are there."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import cascader

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "matplotlib", "jinja2", "pandas", "numpy", "scipy", "pyarrow", "rich", "typer")


def in_fresh_python(code):
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(finished.stdout)


def test_importing_cascader_loads_nothing_heavy():
    loaded = in_fresh_python("import cascader, json, sys; print(json.dumps(sorted(sys.modules)))")
    assert not set(HEAVY) & set(loaded)


def test_using_the_graph_and_the_evaluation_loads_no_torch_or_pandas():
    code = (
        "import cascader, json, sys\n"
        "kg = cascader.KnowledgeGraph.from_triples([('a', 'r', 'b')], test=[('b', 'r', 'a')])\n"
        "cascader.evaluate(cascader.Frequency().fit(kg), kg).as_dict()\n"
        "import cascader.cli\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert not {"torch", "transformers", "matplotlib", "pandas"} & set(in_fresh_python(code))


def test_a_fixed_number_of_candidates_needs_no_torch():
    code = "import cascader, json, sys; cascader.TopK(3), cascader.Cascade; print(json.dumps(sorted(sys.modules)))"
    assert "torch" not in in_fresh_python(code)


@pytest.mark.parametrize("name", cascader.__all__)
def test_every_public_name_is_there(name):
    assert getattr(cascader, name) is not None
    assert name in dir(cascader)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No cascader attribute cascade_r"):
        _ = cascader.cascade_r


def test_the_citation_names_the_paper_its_authors_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == cascader.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    assert paper["title"] == "CascadER: Cross-Modal Cascading for Knowledge Graph Link Prediction"
    assert [author["family-names"] for author in paper["authors"]] == ["Safavi", "Downey", "Hope"]


def test_torch_is_bounded_wherever_it_is_asked_for():
    """Without an upper bound, pip takes a CUDA build of several gigabytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [r for requirements in (project["dependencies"], *extras) for r in requirements]
    assert all("<2.14" in requirement for requirement in wanted if requirement.startswith("torch"))
    assert not any(requirement.startswith("torchvision") for requirement in wanted)
