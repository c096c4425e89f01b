"""What two machines make of the same URL, each with a cache of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cascader.errors import StorageError
from cascader.storage import (
    atomic_folder,
    by_address,
    is_there,
    is_writable,
    local_path,
    present,
    publish,
    refresh,
    remove,
    replaced_folder,
    write_text,
)
from cascader.storage.remote import Remote
from cascader.storage.working_copy import PARTIAL


class Machines:
    """Working copies of the same URL on several machines."""

    def __init__(self, url, folder, monkeypatch):
        self.url, self._folder, self._monkeypatch = url, folder, monkeypatch

    def path(self, name: str) -> Path:
        self._monkeypatch.setenv("CASCADER_CACHE", str(self._folder / name))
        path = local_path(self.url)
        refresh(path)
        return path


@pytest.fixture
def place(tmp_path):
    return tmp_path / "place"


@pytest.fixture
def machines(place, tmp_path, monkeypatch):
    return Machines(f"file://{place}", tmp_path, monkeypatch)


def files_in(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_one_machine_writes_replaces_and_removes_another_sees(machines, place):
    here = machines.path("here")
    write_text(here / "run.json", "first")
    write_text(here / "tiers" / "kge" / "model.json", "kge")
    there = machines.path("there")
    assert files_in(there) == files_in(here) == files_in(place) == {"run.json": "first", "tiers/kge/model.json": "kge"}
    write_text(here / "run.json", "other")
    remove(here / "tiers")
    remove(here / "tiers")
    refresh(there)
    assert files_in(there) == files_in(here) == files_in(place) == {"run.json": "other"}
    assert not (there / "tiers").exists()


def test_only_what_has_changed_is_brought_again(machines, monkeypatch):
    here = machines.path("here")
    write_text(here / "x", "x")
    write_text(here / "y", "y")
    got, get = [], Remote.get
    monkeypatch.setattr(Remote, "get", lambda remote, name, target: [got.append(name), get(remote, name, target)])
    there = machines.path("there")
    refresh(here)
    assert sorted(got) == ["x", "y"]
    write_text(here / "y", "z")
    (there / "x").write_text("damaged")
    refresh(there)
    assert sorted(got[2:]) == ["x", "y"]
    assert files_in(there) == {"x": "x", "y": "z"}


def test_patterns_leave_out_what_is_not_needed(machines):
    here = machines.path("here")
    for name in ("run.json", "scores/cross/x", "tiers/kge/checkpoint"):
        write_text(here / name, "")
    there = machines.path("there")
    (there / "scores" / "cross" / "x").unlink()
    remove(here / "tiers")
    refresh(there, without=("scores/*", "*/checkpoint"))
    assert sorted(files_in(there)) == ["run.json", "tiers/kge/checkpoint"]
    assert present(there / "scores" / "cross" / "x").exists()


def test_a_file_that_cannot_be_put_does_not_appear_here(machines, monkeypatch):
    here = machines.path("here")
    write_text(here / "x", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.put_file", full)
    with pytest.raises(StorageError, match="cannot reach file:///.*/place/x: .*No space left on device"):
        write_text(here / "x", "new")
    assert files_in(here) == {"x": "old"}


def test_hidden_files_stay_here(machines, place):
    here = machines.path("here")
    write_text(here / "x", "x")
    write_text(here / ".lock", "1")
    write_text(here / ".x.tmp" / "y", "1")
    assert files_in(place) == {"x": "x"}
    (place / ".DS_Store").write_text("")
    refresh(here)
    assert sorted(files_in(here)) == [".lock", ".x.tmp/y", "x"]


@pytest.mark.parametrize("writing", [atomic_folder, replaced_folder])
def test_a_folder_that_is_half_there_is_not_there_to_others_and_is_written_again(machines, place, monkeypatch, writing):
    here, put, count = machines.path("here"), Remote.put, iter(range(3))

    def killed(remote, name, source):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return put(remote, name, source)

    def write():
        with writing(here / "graph") as folder:
            for name in ("entities", "inner/relations", "train"):
                write_text(folder / name, name)

    monkeypatch.setattr(Remote, "put", killed)
    write_text(here / "plan.json", "")
    with pytest.raises(KeyboardInterrupt):
        write()
    monkeypatch.setattr(Remote, "put", put)
    assert (place / "graph" / PARTIAL).exists()
    assert len(files_in(place / "graph")) < 4
    for machine in ("here", "there"):
        assert sorted(files_in(machines.path(machine))) == ["plan.json"]
    write()
    assert sorted(files_in(machines.path("there") / "graph")) == ["entities", "inner/relations", "train"]
    assert not (place / "graph" / PARTIAL).exists()


def test_a_replaced_folder_leaves_nothing_of_the_old_one(machines, place):
    here = machines.path("here")
    for names in (["old", "both"], ["both", "new"]):
        with replaced_folder(here / "encoder") as folder:
            for name in names:
                write_text(folder / name, str(names))
    assert sorted(files_in(machines.path("there"))) == sorted(files_in(place)) == ["encoder/both", "encoder/new"]
    assert files_in(machines.path("there")) == files_in(here)


def test_a_whole_copy_can_be_put_at_once(machines):
    here = machines.path("here")
    with atomic_folder(here) as folder:
        write_text(folder / "run.json", "run")
    assert files_in(machines.path("there")) == {"run.json": "run"}


def test_a_file_that_grows_in_its_place_is_published(machines, place):
    here = machines.path("here")
    here.mkdir()
    for line in ("one\n", "two\n"):
        with (here / "events.jsonl").open("a") as file:
            file.write(line)
        publish(here / "events.jsonl")
    assert files_in(place) == {"events.jsonl": "one\ntwo\n"}


def test_what_is_gone_from_its_url_is_set_aside(machines, place, caplog):
    here = machines.path("here")
    write_text(here / "tiers" / "kge", "trained")
    (place / "tiers" / "kge").unlink()
    caplog.set_level("INFO")
    refresh(here)
    assert not here.exists()
    assert not is_there(here)
    aside = next(here.parent.glob("removed-*"))
    assert files_in(aside) == {"tiers/kge": "trained"}
    assert f"file://{place} is empty now. What this machine had of it is kept in {aside}." in caplog.text


def test_a_place_that_takes_no_files_is_read_only(machines, monkeypatch):
    here = machines.path("here")

    def refused(*_, **__):
        raise PermissionError("Access Denied")

    assert is_writable(here)
    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.open", refused)
    assert not is_writable(machines.path("there"))


def test_paths_of_a_copy_are_shown_as_urls(machines):
    here = machines.path("here")
    assert by_address(f"{here / 'run.json'} is damaged") == f"{machines.url}/run.json is damaged"
    assert by_address("runs/mine") == "runs/mine"


def test_two_processes_on_a_machine_share_a_copy(machines, place):
    here = machines.path("here")
    code = (
        "import sys; from cascader.storage import *\n"
        "path = local_path(sys.argv[1])\n"
        "for i in range(20): write_text(path / f'{sys.argv[2]}{i}', ''); refresh(path)"
    )
    arguments = [[sys.executable, "-c", code, machines.url, name] for name in "ab"]
    for process in [subprocess.Popen(each, env=dict(os.environ)) for each in arguments]:
        assert process.wait(60) == 0
    refresh(here)
    assert sorted(files_in(here)) == sorted(files_in(place)) == sorted(f"{n}{i}" for n in "ab" for i in range(20))
