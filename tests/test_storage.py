import os
import time

import pytest

from cascader.errors import StorageError
from cascader.storage import atomic_file, atomic_folder, write_json, write_text


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "x.txt", "old")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "x.txt") as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert (tmp_path / "x.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "out") as temporary:
        (temporary / "first").write_text("")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "out") as temporary:
        (temporary / "first").write_text("")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["first"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic_folder(tmp_path / "out") as temporary:
        (temporary / "first").write_text("")
    assert (tmp_path / "out" / "first").exists()


def test_what_a_killed_process_left_long_ago_is_cleared_away(tmp_path):
    abandoned, recent = tmp_path / ".x.txt.0a.tmp", tmp_path / ".x.txt.0b.tmp"
    for path in (abandoned, recent):
        path.write_text("half")
    os.utime(abandoned, (time.time() - 10**6,) * 2)
    write_text(tmp_path / "x.txt", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.txt.0b.tmp", "x.txt"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    with (
        pytest.raises(StorageError, match="cannot write .*x.bin: No space left on device. What was there is unchanged"),
        atomic_file(tmp_path / "x.bin") as temporary,
    ):
        temporary.symlink_to("/dev/full")  # a real device on which every write fails
        temporary.write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "x.json", {"mrr": float("nan")})
    assert list(tmp_path.iterdir()) == []
