"""Leases: who waits, who takes over, and who has to stop."""

import json
import platform
import threading
import time
from collections.abc import Callable

import pytest

from cascader.errors import StorageError
from cascader.storage import local_path, locked, write_text
from cascader.storage.lease import LEASE, SECONDS_VARIABLE
from cascader.storage.remote import Remote
from cascader.storage.working_copy import WorkingCopy

#: Leases that are to end within a test, and those that are not, even on a busy machine.
SECONDS, LONG_SECONDS = 0.3, 10.0


def _unreachable(*_):
    raise StorageError("out of reach")


def _eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


class LeaseContract:
    """What leases do at every URL; subclasses have the fixture `url`, the URL of an empty place."""

    @pytest.fixture(autouse=True)
    def short_leases(self, monkeypatch):
        monkeypatch.setenv(SECONDS_VARIABLE, str(SECONDS))

    @pytest.fixture
    def long_leases(self, monkeypatch):
        monkeypatch.setenv(SECONDS_VARIABLE, str(LONG_SECONDS))

    @pytest.fixture
    def machine(self, url, tmp_path, monkeypatch):
        """Make a working copy on a machine of a name."""

        def make(name: str) -> WorkingCopy:
            monkeypatch.setenv("CASCADER_CACHE", str(tmp_path / name))
            return WorkingCopy(url)

        return make

    def left_behind(self, machine: WorkingCopy, **changes) -> None:
        """Leave the lease of a process that is dead."""
        holder = {"token": "x", "copy": "another", "host": "elsewhere", "process": 7, "seconds": SECONDS, "renewals": 3}
        content = json.dumps({**holder, **changes}).encode()
        remote, found = machine.remote, machine.remote.read(LEASE)
        # In place of one that is there: were it removed first, its holder could look in between.
        while not (remote.create(LEASE, content) if found is None else remote.swap(LEASE, content, found)):
            found = remote.read(LEASE)  # renewed meanwhile

    def test_who_comes_second_waits_and_says_for_whom(self, machine, caplog, long_leases):
        here, there, is_ours = machine("here"), machine("there"), threading.Event()
        caplog.set_level("INFO")

        def wait_for_it():
            with there.leased(there.path):
                is_ours.set()

        waiting = threading.Thread(target=wait_for_it, daemon=True)
        with here.leased(here.path):
            waiting.start()
            assert _eventually(lambda: f"{here.remote.url} is in use by process " in caplog.text)
            assert not is_ours.is_set()
        assert is_ours.wait(60)
        waiting.join()
        assert f"on {platform.node()}: waiting until it is done, or has given no sign of life for 10 s" in caplog.text
        assert here.remote.list() == {}

    def test_a_lease_is_renewed_while_it_is_held(self, machine):
        here, contents, until = machine("here"), set(), time.monotonic() + 60
        with here.leased(here.path):
            while len(contents) < 3 and time.monotonic() < until:
                contents.add(here.remote.read(LEASE).content)
        assert len(contents) == 3

    def test_folders_have_leases_of_their_own(self, machine):
        here, there = machine("here"), machine("there")
        with here.leased(here.path), there.leased(there.path / "scores" / "cross"):
            assert sorted(here.remote.list()) == [LEASE, f"scores/cross/{LEASE}"]

    def test_the_lease_of_a_dead_process_elsewhere_is_taken_over_once_it_has_been_silent(self, machine, caplog):
        here = machine("here")
        self.left_behind(here)
        caplog.set_level("INFO")
        started = time.monotonic()
        with here.leased(here.path):
            assert time.monotonic() - started >= SECONDS
        assert "took over the lease of" in caplog.text
        assert "process 7 on elsewhere is gone" in caplog.text

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"token": 1}', b"\xff"])
    def test_a_lease_that_nobody_can_read_is_taken_over(self, machine, content):
        here = machine("here")
        assert here.remote.create(LEASE, content)
        with here.leased(here.path):
            pass

    def test_who_has_lost_the_lease_stops_rather_than_writes(self, machine, url):
        here = machine("here")
        path = local_path(url)
        assert path == here.path
        message = "is in use by process 7 on elsewhere, because.*It writes nothing more"
        with pytest.raises(StorageError, match=message), locked(path):
            write_text(path / "mine", "x")
            self.left_behind(here)
            time.sleep(2 * SECONDS)
            write_text(path / "late", "x")
        assert sorted(here.remote.list()) == [LEASE, "mine"]  # and the lease is still the other's
        assert not (path / "late").exists()


class TestFolder(LeaseContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"file://{tmp_path}/place"

    def test_the_lease_of_a_dead_process_on_this_machine_is_taken_over_at_once(self, machine, caplog):
        here = machine("here")
        self.left_behind(here, copy=here._identity(), host=platform.node(), seconds=3600)
        caplog.set_level("INFO")
        with here.leased(here.path):
            assert "is in use" not in caplog.text

    def test_a_place_that_was_out_of_reach_for_a_while_is_no_reason_to_stop(self, machine, url, monkeypatch):
        here, path = machine("here"), local_path(url)
        with locked(path):
            with monkeypatch.context() as patch:
                patch.setattr(Remote, "read", _unreachable)
                time.sleep(2 * SECONDS)
                with pytest.raises(StorageError, match="out of reach"):
                    write_text(path / "x", "x")
            write_text(path / "x", "x")
        assert list(here.remote.list()) == ["x"]

    @pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "86400"])
    def test_bad_seconds_are_refused(self, machine, monkeypatch, seconds):
        monkeypatch.setenv(SECONDS_VARIABLE, seconds)
        here = machine("here")
        message = f"{SECONDS_VARIABLE} is '{seconds}', expected seconds, at most 3600"
        with pytest.raises(StorageError, match=message), here.leased(here.path):
            pass


@pytest.mark.slow
class TestBucket(LeaseContract):
    @pytest.fixture
    def url(self, s3):
        return f"s3://{s3.bucket()}/place"

    # Only where comparing and writing is one step: elsewhere, two can take over (docs/scale.md).
    def test_one_process_of_many_takes_over(self, machine, long_leases):
        copies = [machine(f"machine {number}") for number in range(3)]
        self.left_behind(copies[0])
        inside, most = [], []

        def work(copy):
            with copy.leased(copy.path):
                inside.append(copy)
                most.append(len(inside))
                time.sleep(SECONDS / 3)
                inside.remove(copy)

        threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert most == [1, 1, 1]
