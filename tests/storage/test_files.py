import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cascader.errors import DataError, StorageError
from cascader.storage import (
    atomic_file,
    atomic_folder,
    locked,
    read_npy,
    replaced_folder,
    write_arrays,
    write_json,
    write_tensors,
    write_text,
)


@contextmanager
def with_files_of_at_most(size):
    """A disk that is full after so many bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
        pytest.raises(StorageError, match="write .*x.bin: No space left on device. Existing files are unchanged"),
        atomic_file(tmp_path / "x.bin") as temporary,
    ):
        temporary.unlink()
        temporary.symlink_to("/dev/full")  # a real device on which every write fails
        temporary.write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_tensors_and_a_full_disk(tmp_path):
    import torch

    write_tensors(tmp_path / "x.safetensors", {"old": torch.zeros(2).expand(3, 2)})
    before = (tmp_path / "x.safetensors").read_bytes()
    with with_files_of_at_most(1000), pytest.raises(StorageError, match="cannot write .*x.safetensors: File too large"):
        write_tensors(tmp_path / "x.safetensors", {"new": torch.zeros(1000)})
    assert (tmp_path / "x.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_what_a_library_says_of_other_things_is_left_as_it_is(tmp_path):
    import torch

    shared = torch.zeros(3)
    with pytest.raises(RuntimeError, match="share memory"):
        write_tensors(tmp_path / "x.safetensors", {"one": shared, "same": shared})


def test_a_folder_gives_way_only_to_a_whole_one(tmp_path):
    for content in ("old", "new"):
        with replaced_folder(tmp_path / "out") as temporary:
            (temporary / content).write_text("")
    with pytest.raises(RuntimeError), replaced_folder(tmp_path / "out") as temporary:
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]


def test_a_language_model_and_a_full_disk(tmp_path, tiny_model):
    from cascader.models.text.base_model import load_base_model

    base = load_base_model(tiny_model)
    base.save(tmp_path / "encoder")
    before = sorted((path.name, path.stat().st_size) for path in (tmp_path / "encoder").iterdir())
    with with_files_of_at_most(1000), pytest.raises(StorageError, match="cannot write .*encoder: File too large"):
        base.save(tmp_path / "encoder")
    assert sorted((path.name, path.stat().st_size) for path in (tmp_path / "encoder").iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_a_tokenizer_and_a_full_disk(tmp_path, tiny_model):
    from cascader.models.text.base_model import load_base_model

    tokenizer = load_base_model(tiny_model).tokenizer
    with (
        pytest.raises(StorageError, match="cannot write .*encoder: File too large"),
        with_files_of_at_most(1000),
        replaced_folder(tmp_path / "encoder") as temporary,
    ):
        tokenizer.save_pretrained(temporary)
    assert list(tmp_path.iterdir()) == []


def test_a_pickled_array_is_not_read(tmp_path):
    np.save(tmp_path / "plain.npy", np.arange(3))
    assert read_npy(tmp_path / "plain.npy").tolist() == [0, 1, 2]
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    for name in ("x.npy", "nowhere.npy"):
        with pytest.raises(DataError, match=f"cannot read .*{name}.*Expected a .npy file without pickled objects"):
            read_npy(tmp_path / name)


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "x.json", {"mrr": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_who_comes_second_waits_says_for_whom_and_a_killed_holder_holds_nothing(tmp_path, caplog):
    code = (
        "import sys, time; from pathlib import Path; from cascader.storage import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(600)"
    )
    caplog.set_level("INFO")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        is_ours = threading.Event()

        def wait_for_it():
            with locked(tmp_path):
                is_ours.set()

        waiting = threading.Thread(target=wait_for_it, daemon=True)
        waiting.start()
        assert not is_ours.wait(0.3)
        holder.kill()
        assert is_ours.wait(30)
    assert f"{tmp_path} is in use by process {holder.pid}: waiting until it is done." in caplog.text


def test_all_files_get_the_mode_that_new_files_have(tmp_path):
    (tmp_path / "new").touch()
    write_tensors(tmp_path / "model.safetensors", {"x": torch.zeros(2)})
    write_arrays(tmp_path / "arrays.safetensors", {"x": np.zeros(2)})
    with replaced_folder(tmp_path / "encoder") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").write_text("x")
        (folder / "inner" / "weights").chmod(0o600)
    modes = {path.name: path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert set(modes.values()) == {modes["new"]}
    assert [path.name for path in (tmp_path / "encoder" / "inner").iterdir()] == ["weights"]
