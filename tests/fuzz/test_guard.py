"""The guard sees what no case may do, and lets them do the rest."""

import os
import pickle  # noqa: TID251 - what is read here is harmless, and must be seen all the same
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.sandbox import Sandbox


@pytest.fixture
def sandbox(tmp_path):
    sandbox = Sandbox(tmp_path / "sandbox")
    sandbox.emptied()
    with sandbox.entered():
        yield sandbox


def offenses(sandbox, deed):
    """What the guard notes while something is done in the case's folder."""
    with sandbox.watched() as guard:
        try:
            deed()
        except PermissionError as refusal:
            assert "forbidden while fuzzing" in str(refusal)
    return [kind for kind, _ in guard.offenses]


WRITES = {
    "open": lambda: Path("../evil").write_text("x"),
    "append": lambda: Path("../neighbor.txt").open("a").close(),
    "os.open": lambda: os.open("../evil", os.O_CREAT | os.O_WRONLY),
    "mkdir": lambda: Path("../evil").mkdir(),
    "rename": lambda: Path("mine").rename("../evil"),
    "replace": lambda: Path("mine").replace("../neighbor.txt"),
    "unlink": lambda: Path("../neighbor.txt").unlink(),
    "symlink": lambda: Path("../evil").symlink_to("mine"),
    "hard link": lambda: Path("../evil").hardlink_to("mine"),
    "chmod": lambda: Path("../neighbor.txt").chmod(0o777),
    "truncate": lambda: os.truncate("../neighbor.txt", 0),
    "through a link": lambda: Path("link").write_text("x"),
    "through dots": lambda: Path("folder/../../evil").write_text("x"),
    "home": lambda: Path("~/evil").expanduser().write_text("x"),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_write_outside_is_seen_and_refused(sandbox, way):
    (sandbox.case / "mine").write_text("mine")
    (sandbox.case / "folder").mkdir()
    (sandbox.case / "link").symlink_to(sandbox.root / "neighbor.txt")
    assert offenses(sandbox, WRITES[way]) == ["outside"]
    assert not list(sandbox.root.rglob("evil"))


def test_a_write_by_a_library_that_tells_python_nothing_is_seen_in_the_end(sandbox):
    import pyoxigraph

    assert offenses(sandbox, lambda: pyoxigraph.serialize([], "../evil.nt", format=pyoxigraph.RdfFormat.N_TRIPLES)) == [
        "outside"
    ]


def test_a_temporary_file_that_is_left_behind_is_seen(sandbox):
    assert offenses(sandbox, lambda: (sandbox.root / "temporary" / "left").write_text("x")) == ["outside"]
    assert offenses(sandbox, lambda: None) == []


def test_a_case_may_write_to_its_folder_and_to_temporary_ones(sandbox):
    import shutil
    import tempfile

    def work():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "inner").mkdir()
            Path(folder, "inner", "file").write_text("x")
        Path("mine").write_text("x")
        Path("mine").rename("yours")
        shutil.copy("yours", "ours")
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            nowhere.write("x")

    assert offenses(sandbox, work) == []


PACKETS = {
    "connect": lambda: socket.socket().connect(("127.0.0.1", 9)),
    "datagram": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    "look up a name": lambda: socket.getaddrinfo("example.org", 80),
}


@pytest.mark.parametrize("way", PACKETS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_packet_is_seen_and_refused(sandbox, way):
    assert offenses(sandbox, PACKETS[way]) == ["packet"]


def test_a_connection_within_the_machine_is_no_packet(sandbox):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert offenses(sandbox, lambda: ours.send(b"x")) == []
    assert offenses(sandbox, lambda: socket.getaddrinfo("127.0.0.1", 80)) == []


def import_from_the_case():
    sys.path.insert(0, str(Path.cwd()))
    try:
        import evil_module  # noqa: F401
    finally:
        sys.path.pop(0)


CODE = {
    "process": lambda: subprocess.run(["true"], check=True),
    "shell": lambda: os.system("true"),
    "pickle": lambda: pickle.loads(b"cos\nsystem\n."),  # noqa: S301
    "module": import_from_the_case,
}


@pytest.mark.parametrize("way", CODE)
def test_code_that_is_run_is_seen_and_refused(sandbox, way):
    (sandbox.case / "evil_module.py").write_text("1 / 0")
    assert offenses(sandbox, CODE[way]) == ["code"]


def test_code_of_our_own_may_run(sandbox):
    assert offenses(sandbox, lambda: exec("x = 1")) == []
