"""Downloads against a real server on this machine."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cascader.datasets import Source, fetch, locate
from cascader.errors import DataError, StorageError
from cascader.storage import cache_folder

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.headers.get("Range"))
        content, status = self.server.content, 200
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and self.server.knows_ranges:
            content, status = content[int(asked[1]) :], 206
        self.send_response(self.server.status or status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.cut_after])

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that has read enough hangs up; that is no error of the server's."""


@pytest.fixture
def server():
    httpd = Server(("127.0.0.1", 0), Handler)
    httpd.content, httpd.requests, httpd.knows_ranges, httpd.cut_after, httpd.status = CONTENT, [], True, None, None
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def source(server):
    return Source("file.bin", f"http://127.0.0.1:{server.server_port}/file.bin", SHA256, len(CONTENT))


def cached_names():
    return sorted(path.name for path in cache_folder().iterdir()) if cache_folder().is_dir() else []


def test_a_file_is_fetched_once_and_then_taken_from_the_cache(server, source):
    assert locate(source) is None
    assert fetch(source).read_bytes() == CONTENT
    assert fetch(source) == locate(source)
    assert len(server.requests) == 1
    assert cached_names() == ["file.bin"]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(server, source, knows_ranges):
    server.knows_ranges = knows_ranges
    server.cut_after = 300_000
    with pytest.raises(DataError, match=r"the connection ended after 300,000 of 1,048,576 bytes. Try again to resume"):
        fetch(source)
    assert cached_names() == ["file.bin.part"]
    server.cut_after = None
    assert fetch(source).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-"]


def test_a_part_that_was_already_whole_needs_no_request(server, source):
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "file.bin.part").write_bytes(CONTENT)
    assert fetch(source).read_bytes() == CONTENT
    assert server.requests == []


def test_a_part_that_is_too_long_starts_anew(server, source):
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(source).read_bytes() == CONTENT
    assert server.requests == [None]


def test_resuming_needs_room_for_the_rest_only(server, source, monkeypatch):
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "file.bin.part").write_bytes(CONTENT[:-500])
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    assert fetch(source).read_bytes() == CONTENT


def test_a_file_with_another_sha256_is_not_kept(server, source):
    server.content = CONTENT[::-1]
    with pytest.raises(DataError, match=f"has sha256 [0-9a-f]+, expected {SHA256}. The file has changed at its home"):
        fetch(source)
    assert cached_names() == []


def test_a_file_that_never_ends_does_not_fill_the_disk(server, source):
    server.content = CONTENT * 20
    with pytest.raises(DataError, match="has sha256"):
        fetch(source)
    assert cached_names() == []


def test_a_damaged_file_in_the_cache_is_fetched_again(server, source, caplog):
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "file.bin").write_bytes(b"damaged")
    assert fetch(source).read_bytes() == CONTENT
    assert "is damaged: downloading it again" in caplog.text


def test_a_full_disk_leaves_the_old_cache_as_it_was(server, source, monkeypatch):
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "other.bin").write_bytes(b"precious")
    (cache_folder() / "file.bin.part").symlink_to("/dev/full")  # a real disk that is full: every write fails
    with pytest.raises(StorageError, match="is full: file.bin does not fit. Free some space.* The cache is unchanged"):
        fetch(source)
    assert cached_names() == ["other.bin"]
    assert (cache_folder() / "other.bin").read_bytes() == b"precious"


def test_too_little_room_is_seen_before_anything_is_fetched(server, source, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(StorageError, match="is full"):
        fetch(source)
    assert server.requests == []


def test_a_cache_that_cannot_be_written_is_an_error_that_says_where(server, source, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CASCADER_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="Set CASCADER_CACHE to another folder"):
        fetch(source)


def test_a_home_that_says_no_is_an_error_that_names_it(server, source):
    server.status = 404
    with pytest.raises(DataError, match=r"cannot download file.bin from http://127.0.0.1:\d+/file.bin: HTTP Error 404"):
        fetch(source)


def test_no_network_is_an_error_that_offers_the_mirror():
    with pytest.raises(DataError, match="put the file into a folder and set CASCADER_MIRROR to it"):
        fetch(Source("file.bin", "http://127.0.0.1:1/file.bin", SHA256, len(CONTENT)))


class TestMirror:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CASCADER_MIRROR", str(tmp_path))
        return tmp_path

    def test_a_file_in_the_mirror_is_used_and_nothing_is_fetched(self, server, source, folder):
        (folder / "file.bin").write_bytes(CONTENT)
        assert fetch(source) == folder / "file.bin"
        assert server.requests == []
        assert cached_names() == []

    def test_a_wrong_file_in_the_mirror_is_an_error(self, source, folder):
        (folder / "file.bin").write_bytes(b"wrong")
        with pytest.raises(DataError, match="Replace it in the folder that CASCADER_MIRROR names"):
            fetch(source)

    def test_a_file_that_the_mirror_lacks_is_fetched(self, source, folder):
        assert fetch(source).parent == cache_folder()


class TestUnknownSha256:
    def test_a_file_that_nobody_has_a_sum_of_is_fetched_whole(self, server):
        source = Source("texts.json", f"http://127.0.0.1:{server.server_port}/texts.json")
        assert fetch(source).read_bytes() == CONTENT

    def test_and_starts_anew_after_a_broken_connection(self, server):
        source = Source("texts.json", f"http://127.0.0.1:{server.server_port}/texts.json")
        server.cut_after = 1000
        with pytest.raises(DataError, match="the connection ended after 1,000"):
            fetch(source)
        server.cut_after = None
        assert fetch(source).read_bytes() == CONTENT
        assert server.requests == [None, None]
