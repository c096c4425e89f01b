"""What every place that a URL leads to must do, whatever its file system."""

import pytest

from cascader.errors import DataError
from cascader.storage.remote import Remote


class RemoteContract:
    """What every place must do; subclasses have the fixture `url`, the URL of an empty place."""

    @pytest.fixture
    def remote(self, url) -> Remote:
        return Remote(url)

    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(b"content")
        return path

    def test_an_empty_place_has_nothing(self, remote):
        assert remote.list() == {}
        assert remote.read(".lease") is None

    def test_what_is_put_is_listed_and_comes_back(self, remote, file, tmp_path):
        remote.put("run.json", file)
        remote.put("tiers/kge/model.json", file)
        assert sorted(remote.list()) == ["run.json", "tiers/kge/model.json"]
        assert list(remote.list("tiers/kge")) == ["tiers/kge/model.json"]
        remote.get("tiers/kge/model.json", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"content"

    def test_a_folder_is_not_taken_for_another_that_begins_alike(self, remote, file):
        remote.put("scores/cross/a", file)
        remote.put("scores/cross2/b", file)
        assert list(remote.list("scores/cross")) == ["scores/cross/a"]

    def test_what_is_replaced_has_another_version(self, remote, file):
        first = remote.put("x", file)
        assert remote.list()["x"].version == first
        file.write_bytes(b"another")
        second = remote.put("x", file)
        assert remote.list()["x"].version == second != first
        assert remote.list()["x"].written_at is not None

    def test_what_is_removed_is_gone_and_may_be_removed_again(self, remote, file):
        remote.put("x", file)
        remote.remove("x")
        remote.remove("x")
        assert remote.list() == {}

    def test_only_one_creates_and_only_who_has_read_it_last_replaces(self, remote):
        assert remote.create(".lease", b"first")
        assert not remote.create(".lease", b"second")
        found = remote.read(".lease")
        assert found.content == b"first"
        assert remote.swap(".lease", b"second", found)
        assert not remote.swap(".lease", b"third", found)
        assert remote.read(".lease").content == b"second"
        remote.remove(".lease")
        assert not remote.swap(".lease", b"third", found)
        assert remote.read(".lease") is None

    def test_it_is_writable_and_trying_leaves_nothing(self, remote):
        assert remote.is_writable()
        assert remote.list() == {}

    def test_a_name_that_no_run_has_is_refused(self, remote, file):
        remote.put("odd;name", file)
        with pytest.raises(DataError, match="has an object called 'odd;name', which no run has.*Remove it"):
            remote.list()
