"""What a path leads to: nothing but regular files is read, and no folder with a way out of it is used."""

import os
import socket

import pytest

from cascader.errors import DataError, StorageError
from cascader.paths import check_regular, copy_files, regular, resolved
from cascader.storage import read_arrays, read_bytes, read_json, read_npy, read_parquet, read_tensors, sha256_of


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.mark.parametrize(
    "read", [regular, read_json, read_tensors, read_arrays, read_npy, read_parquet, read_bytes, sha256_of]
)
def test_no_reader_waits_for_a_fifo(fifo, read):
    with pytest.raises(DataError, match="fifo is a FIFO, expected a regular file. Remove it, or name another."):
        read(fifo)


def test_a_folder_with_a_fifo_deep_inside_is_refused(tmp_path):
    (tmp_path / "run" / "tiers").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "tiers" / "model.json")
    with pytest.raises(DataError, match="model.json is a FIFO, expected nothing but files"):
        check_regular(tmp_path / "run")


def test_a_folder_with_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("run/x")
        with pytest.raises(DataError, match="x is a socket, expected nothing but files"):
            check_regular(tmp_path / "run")


@pytest.mark.parametrize("target", ["../outside.txt", "/etc/hostname", "missing.txt", "../run/../outside.txt", "loop"])
def test_a_folder_with_a_link_out_of_it_is_refused(tmp_path, target):
    (tmp_path / "run").mkdir()
    (tmp_path / "outside.txt").write_text("x")
    (tmp_path / "run" / "loop").symlink_to("loop")
    (tmp_path / "run" / "link").symlink_to(target)
    with pytest.raises(DataError, match="is a link to .*, which is not in .*/run. Replace it by the file"):
        check_regular(tmp_path / "run")


def test_a_link_within_the_folder_is_fine_and_so_is_a_folder_behind_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("x")
    (tmp_path / "run" / "link").symlink_to("file")
    (tmp_path / "mine").symlink_to("run")
    check_regular(tmp_path / "run")
    check_regular(tmp_path / "mine")


@pytest.mark.parametrize("use", [resolved, check_regular])
def test_a_link_that_leads_back_to_itself_is_refused(tmp_path, use):
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    with pytest.raises(StorageError, match="there is a link that leads back to itself. Remove it, or name another"):
        use(tmp_path / "there")


def test_files_are_copied_with_the_mode_of_new_ones(tmp_path):
    (tmp_path / "run" / "inner").mkdir(parents=True, mode=0o700)
    for name in ("inner/file", ".hidden"):
        (tmp_path / "run" / name).write_text("x")
        (tmp_path / "run" / name).chmod(0o600)
    copy_files(tmp_path / "run", tmp_path / "copy")
    (tmp_path / "new").write_text("x")
    assert [path.name for path in (tmp_path / "copy").rglob("*")] == ["inner", "file"]
    assert (tmp_path / "copy" / "inner" / "file").stat().st_mode == (tmp_path / "new").stat().st_mode
