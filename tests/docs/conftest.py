"""A folder with the files that the documents speak of."""

import shutil
import subprocess
import sys

import pytest

import cascader
from tests.docs.blocks import commands

#: The README and the guide to answers begin with it, and train the default language model twice.
FIT = "cascader fit my-graph.tsv --preset quick --out runs/mine"
#: The same in Python.
FIT_IN_PYTHON = 'cascader.fit(kg, "runs/mine", preset="quick")'


@pytest.fixture(scope="session")
def cache_of_the_documents(tmp_path_factory):
    """One for all of them: a text that one document has read, the next need not read again."""
    return tmp_path_factory.mktemp("cache-of-the-documents")


@pytest.fixture(scope="session")
def wordnet_files():
    """The graph that some documents load: read once, to see whether its files are there."""
    try:
        cascader.load_graph("wordnet")
    except cascader.MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def somewhere(tmp_path, monkeypatch, cache_of_the_documents, wordnet_files):
    """An empty folder but for the graph that is yours."""
    monkeypatch.setenv("CASCADER_CACHE", str(cache_of_the_documents))
    monkeypatch.setattr("cascader.models.training._SECONDS_TIMED", 0.02)  # plans are rough, and made in a moment
    write_graph(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A folder in which the command that documents begin with has been run, by a process of its own.

    It is the only one that trains the tiers of the README without being told otherwise, and must not warn of anything.
    """
    folder = tmp_path_factory.mktemp("fitted")
    write_graph(folder)
    (words,) = commands(FIT)
    subprocess.run([sys.executable, "-W", "error", "-m", *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def start_from_fitted(request, somewhere):
    """Where a block begins with the command that has been run already, its run is put in place."""

    def start(block):
        if FIT_IN_PYTHON in block or any(words == commands(FIT)[0] for words in commands(block)):
            shutil.copytree(request.getfixturevalue("fitted") / "runs", somewhere / "runs")

    return start


def write_graph(folder):
    rows = [f"drug {i}\ttreats\tdisease {j}" for i in range(6) for j in range(5)]
    (folder / "my-graph.tsv").write_text("\n".join(rows) + "\n")
    labels = [f"{row}\tyes" for row in rows] + [f"drug {i}\ttreats\tdrug {5 - i}\tno" for i in range(6)]
    (folder / "labels.tsv").write_text("\n".join(labels) + "\n")


@pytest.fixture(autouse=True)
def models_of_an_example_are_forgotten(monkeypatch):
    """A document may register a model under a name that another test uses."""
    from cascader.models import registry

    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
