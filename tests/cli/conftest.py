"""The command line, called as a person calls it, and runs for it that are made once."""

import shutil
import sys
from collections import deque

import numpy as np
import pytest

import cascader
from cascader.cli import main
from cascader.graph import KnowledgeGraph
from tests.conftest import accept_every_gain

#: How many entities of WordNet, around Germany, the examples and the demo are tried on.
WORDNET_ENTITIES = 250
#: All three tiers, trained in a moment; `{base}` is the language model.
SMALL_TIERS = (
    "epochs=2",
    "dim=4",
    "dual.base={base}",
    "dual.epochs=2",
    "cross.base={base}",
    "cross.split_layer=0",
    "cross.precision=float32",
    "cross.rounds=2",
    "cross.queries_per_round=8",
    "cross.valid_top_k=3",
)


def call(patch, *arguments):
    """Run a command line in this process; return its exit code."""
    patch.setattr(sys, "argv", ["cascader", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def call_once(*arguments):
    """Run a command line that must work, for what is made once for many tests."""
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, *arguments) == 0


def setting_options(settings):
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line; return exit code, standard output and standard error."""

    def run(*arguments):
        code = call(monkeypatch, *arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="package", autouse=True)
def costs_are_measured_in_a_moment():
    """A plan times each tier's steps for 0.4 s; how well it predicts is tested in tests/runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascader.models.training._SECONDS_TIMED", 0.02)
        yield


@pytest.fixture
def triples(tmp_path):
    rows = [f"e{i}\tknows\te{j}" for i in range(8) for j in range(i)]
    (tmp_path / "friends.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "friends.tsv"


@pytest.fixture(scope="session")
def likes(tmp_path_factory):
    """A graph with names that a language model can read."""
    path = tmp_path_factory.mktemp("likes") / "likes.tsv"
    path.write_text("".join(f"abc {a}\tlikes\txyz {b}\n" for a in "abcdefgh" for b in "uvwxyz"))
    return path


@pytest.fixture(scope="session")
def fitted_tiers(likes, tiny_model, tmp_path_factory):
    """A run of all three tiers, hardly trained."""
    folder = tmp_path_factory.mktemp("three-tiers") / "run"
    settings = setting_options(setting.format(base=tiny_model) for setting in SMALL_TIERS)
    call_once("fit", likes, "--tiers", "kge,dual,cross", *settings, "--out", folder)
    accept_every_gain(folder)
    return folder


@pytest.fixture
def three_tiers(fitted_tiers, tmp_path):
    """The same run for one test, which may write into it."""
    return shutil.copytree(fitted_tiers, tmp_path / "three-tiers")


@pytest.fixture(scope="module")
def small_wordnet():
    """WordNet is the part of it around Germany, for every command that loads it."""
    try:
        kg = around(cascader.load_graph("wordnet"), "Germany", WORDNET_ENTITIES)
    except cascader.MissingExtraError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascader.datasets.benchmarks.read_wordnet", lambda: kg)
        yield kg


def around(kg, center, count):
    """The part of a graph that the entities nearest to one of them make up."""
    chosen = nearest(kg, kg.entity_index(center), count)
    number = np.full(len(kg.entities), -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))

    def within(triples):
        kept = triples[(number[triples[:, 0]] >= 0) & (number[triples[:, 2]] >= 0)]
        return np.stack([number[kept[:, 0]], kept[:, 1], number[kept[:, 2]]], axis=1)

    splits = (within(triples) for triples in (kg.train, kg.valid, kg.test))
    return KnowledgeGraph(kg.name, tuple(kg.entities[i] for i in chosen), kg.relations, *splits)


def nearest(kg, start, count):
    """Entities by their distance in train, as far as `count` goes."""
    found, waiting = [start], deque([start])
    while waiting and len(found) < count:
        here = waiting.popleft()
        ends = kg.train[(kg.train[:, [0, 2]] == here).any(axis=1)][:, [0, 2]].ravel()
        new = [entity for entity in dict.fromkeys(ends.tolist()) if entity not in found]
        found += new
        waiting += new
    return sorted(found[:count])
