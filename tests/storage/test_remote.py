"""Places that URLs lead to: a folder, this process's memory, and a bucket of a real server."""

import secrets
import subprocess
import sys

import fsspec
import pytest

from cascader.errors import DataError, MissingExtraError, SettingsError, StorageError
from cascader.storage import local_path
from cascader.storage.remote import Remote
from tests.contracts import RemoteContract


class TestFolder(RemoteContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"file://{tmp_path}/place"


class TestMemory(RemoteContract):
    @pytest.fixture
    def url(self):
        return f"memory://{secrets.token_hex(4)}/place"


@pytest.mark.slow
class TestBucket(RemoteContract):
    @pytest.fixture
    def url(self, s3):
        return f"s3://{s3.bucket()}/place"

    def test_a_bucket_that_is_not_there_is_no_empty_place(self, s3, tmp_path):
        remote = Remote("s3://nowhere/place")
        for call in (remote.list, remote.is_writable, lambda: remote.read("x"), lambda: remote.create("x", b"")):
            with pytest.raises(StorageError, match="s3://nowhere/place.* is not there: .*bucket.*Make it"):
                call()

    def test_a_name_that_leads_elsewhere_is_refused(self, s3):
        bucket = s3.bucket()
        remote = Remote(f"s3://{bucket}/place")
        for name in ("../x", "graph/../../x", "graph//x", "/etc/x", "a\\b", "C:x", "x|y", "x ", "…"):
            s3.client.put_object(Bucket=bucket, Key=f"place/{name}", Body=b"x")
            with pytest.raises(DataError, match="has an object called .* which no run has"):
                remote.list()
            s3.empty(bucket)

    def test_an_object_that_stands_for_a_folder_is_no_file(self, s3):
        bucket = s3.bucket()
        for key in ("place/", "place/graph/"):
            s3.client.put_object(Bucket=bucket, Key=key)
        assert Remote(f"s3://{bucket}/place").list() == {}

    def test_an_object_in_the_place_of_a_folder_is_refused(self, s3):
        bucket = s3.bucket()
        for key in ("place/graph", "place/graph/x"):
            s3.client.put_object(Bucket=bucket, Key=key, Body=b"x")
        with pytest.raises(DataError, match="has 'graph/x' below an object, expected below a folder"):
            Remote(f"s3://{bucket}/place").list()

    def test_credentials_that_fail_are_named(self, s3, monkeypatch):
        bucket = s3.bucket()
        with s3.checking_credentials(), pytest.raises(StorageError, match="is refused: .*AWS_ACCESS_KEY_ID"):
            Remote(f"s3://{bucket}/place").list()
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(StorageError, match="no credentials for s3://.*Set AWS_ACCESS_KEY_ID"):
            Remote(f"s3://{bucket}/place").list()

    def test_a_profile_that_is_not_there_is_no_matter_of_the_network(self, s3, monkeypatch):
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        with pytest.raises(StorageError, match=r"no credentials for s3://.*profile \(nobody\).*or AWS_PROFILE"):
            Remote(f"s3://{s3.bucket()}/place").list()

    def test_a_server_that_does_not_answer_is_named(self, s3, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises(StorageError, match="cannot reach s3://bucket/place: .*Check the address, the network and"):
            Remote("s3://bucket/place").list()


def test_an_unknown_protocol_is_refused_with_those_that_are_known():
    with pytest.raises(SettingsError, match="s4://x has the protocol 's4', which is not known. Use s3://BUCKET/FOLDER"):
        Remote("s4://x")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "HTTPS://example.org/run"])
def test_a_web_server_is_refused_without_being_asked(url):
    with pytest.raises(SettingsError, match="is the address of a web server, which cannot keep a run"):
        Remote(url)


def test_a_missing_package_is_named(monkeypatch):
    def missing(protocol):
        raise ImportError(f"Install {protocol}fs to access it")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(MissingExtraError, match=r"s3:// needs .*: pip install 'cascader\[s3\]'"):
        Remote("s3://bucket")
    with pytest.raises(MissingExtraError, match="gs:// needs .* Install gsfs to access it"):
        Remote("gs://bucket")


def test_a_url_that_was_made_a_path_is_refused(tmp_path):
    from pathlib import Path

    with pytest.raises(SettingsError, match="was a URL before it became a Path.*Give it as text"):
        local_path(Path("s3://bucket/run"))


def test_a_plain_path_loads_no_fsspec(tmp_path):
    code = (
        "import sys; from pathlib import Path; from cascader.storage import *\n"
        "path = local_path(sys.argv[1]); write_text(path / 'x', 'x'); refresh(path); remove(path / 'x')\n"
        "assert 'fsspec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
