"""Small runs, made once: all three tiers on texts that are hostile here and there, and an embedding alone."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import cascader
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.models.embeddings import ComplEx
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.runs import load_run
from cascader.serve import create_app
from cascader.serve.budget_levels import budget_levels
from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.conftest import accept_every_gain

EVIL = '<script>alert("1")</script> & ümlaut'


def words_graph() -> KnowledgeGraph:
    """Colours of things; one has a hostile name, two share a name, and one relation has no facts in train."""
    triples = np.array([(a, (a + b) % 2, b) for a in range(8) for b in range(8, 16) if (a * b) % 3 != 1])
    triples = np.random.default_rng(0).permutation(triples).astype(np.int32)
    names = ["red", "green", "blue", "warm", "cold", "bright", "dark red", "pale"]
    names += ["apple", "leaf", "sea", "fire", EVIL, "sun", "moon", "moon"]
    entities = tuple(Entity(f"e{i}", name, (f"something {name} " * 6).strip()) for i, name in enumerate(names))
    relations = Relation("of", "is the colour of"), Relation("like", "looks like"), Relation("never", "is never")
    return KnowledgeGraph("words", entities, relations, triples[12:], triples[:8], triples[8:12])


@pytest.fixture(scope="session")
def words_folder(tmp_path_factory, tiny_model) -> Path:
    """A run with all three tiers; tests must not write to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache")))
        kg, folder = words_graph(), tmp_path_factory.mktemp("runs") / "words"
        kge = ComplEx(dim=8, epochs=5).fit(kg)
        dual = DualEncoder(base=tiny_model, epochs=2, dim=4, max_tokens=40).fit(kg)
        cross = CrossEncoder(base=tiny_model, split_layer=0, rounds=1, queries_per_round=8, max_tokens=40)
        run = cascader.save_run(folder, kg, {"kge": kge, "dual": dual, "cross": cross.fit(kg, earlier=kge)})
        run.tuned()
        accept_every_gain(folder)
        budget_levels(run)  # calibrates, so that no server has to
        run.classify([("e0", "of", "e8")])
    return folder


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory) -> Path:
    """A run with an embedding alone."""
    kg, folder = words_graph(), tmp_path_factory.mktemp("runs") / "plain"
    return cascader.save_run(folder, kg, {"kge": ComplEx(dim=8, epochs=5).fit(kg)}).folder.path


@pytest.fixture(scope="session")
def structural_folder(tmp_path_factory) -> Path:
    """A run of tiers that give reasons; the thing with the hostile name is in many of its facts."""
    kg, folder = words_graph(), tmp_path_factory.mktemp("runs") / "structural"
    models = {"plausibility": Plausibility(), "rules": Rules(), "similarity": Similarity()}
    cascader.save_run(folder, kg, {name: model.fit(kg) for name, model in models.items()}).tuned()
    accept_every_gain(folder)
    return folder


@contextmanager
def client_of(folder, **settings):
    with TestClient(create_app(load_run(folder), **settings), base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="session")
def words(words_folder, tmp_path_factory):
    """A client of the run with three tiers."""
    folder = tmp_path_factory.mktemp("served") / "words"
    shutil.copytree(words_folder, folder)
    with client_of(folder) as client:
        yield client


@pytest.fixture(scope="session")
def plain(plain_folder):
    """A client of the run with an embedding alone."""
    with client_of(plain_folder) as client:
        yield client


@contextmanager
def server_of(folder, *options, errors=subprocess.DEVNULL):
    """A server of its own process, as a person starts it; yields the process and its address."""
    command = [sys.executable, "-m", "cascader", "serve", str(folder), "--port", "0", *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": str(Path(cascader.__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert line.startswith(f"Serving {folder} at http://"), line
        yield process, line.split()[-1].rstrip("/")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
