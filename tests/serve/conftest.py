"""Small runs, made once: all three tiers on texts that are hostile here and there, and an embedding alone."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from fastapi.testclient import TestClient

import cascader
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.models.embeddings import ComplEx
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.models.text import CrossEncoder, DualEncoder
from cascader.runs import Predictor, load_run
from cascader.serve import Limits, create_app
from cascader.serve.budget_levels import budget_levels
from cascader.serve.server import _config
from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.conftest import accept_every_gain
from tests.processes import Forked, command

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
def served(loaded, limits=Limits(), **settings):  # noqa: B008 - a frozen value
    """The run at an address, from a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(_config(create_app(loaded, limits=limits, **settings), limits))
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)


class HeldUp:
    """Holds the thread that computes in its first answer, until it may go on; remembers what was computed."""

    def __init__(self, patch):
        self.has_begun, self.goes_on, self.asked, answer = threading.Event(), threading.Event(), [], Predictor.answer

        def answer_later(predictor, queries, **options):
            self.has_begun.set()
            assert self.goes_on.wait(60)
            self.asked.append(queries.anchors.tolist())
            return answer(predictor, queries, **options)

        patch.setattr(Predictor, "answer", answer_later)


@pytest.fixture
def held_up(monkeypatch):
    """What computes for a server that is made afterwards, once it is asked, waits until it may go on."""
    return lambda: HeldUp(monkeypatch)


@contextmanager
def forked_server_of(folder, *options):
    """A server of its own process, which has loaded the libraries already; yields the process and its address."""
    with Forked(command, "serve", folder, "--port", 0, *options, errors=os.devnull) as process:
        yield process, address_of(process, folder)


@contextmanager
def server_of(folder, *options, errors=subprocess.DEVNULL):
    """A server of its own process, as a person starts it; yields the process and its address."""
    command = [sys.executable, "-m", "cascader", "serve", str(folder), "--port", "0", *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": str(Path(cascader.__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        yield process, address_of(process, folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def address_of(process, folder):
    line = process.stdout.readline()
    assert line.startswith(f"Serving {folder} at http://"), line
    return line.split()[-1].rstrip("/")
