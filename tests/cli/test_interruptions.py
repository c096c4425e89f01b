"""Whole commands that signals end and disks fail: a few of the faults that `make faults` tries by the dozen."""

import json

import numpy as np
import pytest

from cascader.storage import write_arrays
from tests.faults.__main__ import main as meet_with_faults
from tests.faults.__main__ import recorded, table
from tests.faults.contents import contents_of, differences
from tests.faults.signals import Fault
from tests.processes import finished

KILLS = 7


@pytest.mark.slow
def test_commands_that_meet_with_faults_go_on_to_equal_contents(tmp_path, random_seed):
    tried = ("fit", "tune", "evaluate", "predict", "serve", "shards")
    options = ["--folder", str(tmp_path), "--seed", str(random_seed), "--kills", str(KILLS), "--only", ",".join(tried)]
    code, printed = finished(meet_with_faults, options)
    assert code == 0, printed
    faults = json.loads((tmp_path / "faults.json").read_text())
    assert len(faults) == KILLS + 2
    assert {fault["command"] for fault in faults} == {"fit", "tune", "evaluate", "predict", "serve"}
    assert all(fault["is_resumed"] and fault["is_equal"] for fault in faults)


def test_a_command_that_does_what_nobody_expects_is_a_line_of_the_table():
    """It lost the whole table."""

    def faults():
        yield Fault("fit", "SIGKILL", "in 1.0 s", "killed", "fit", is_resumed=True, is_equal=True)
        raise AssertionError("fit wrote a traceback")

    first, second = recorded("fit", faults())
    assert (first.is_equal, second.command, second.is_equal) == (True, "fit", False)
    assert table([first, second]).endswith("1 of 2 faults resumed to equal contents.")


class TestWhatCountsAsEqual:
    @pytest.fixture
    def folder(self, tmp_path):
        scores = {"keys": np.array([3, 7]), "scores": np.array([0.5, 1.5], dtype=np.float32)}
        write_arrays(tmp_path / "scores" / "cross" / ("0" * 16) / "00000.safetensors", scores)
        (tmp_path / "model.json").write_text(json.dumps({"seconds": 1.5, "valid": {"1": 0.5}, "model": "a" * 64}))
        (tmp_path / "run.json").write_text(json.dumps({"data_hash": "b" * 64}))
        return tmp_path

    def changed(self, folder, file, change):
        before = contents_of(folder)
        path = folder / file
        path.write_bytes(change(path.read_bytes()))
        return differences(contents_of(folder), before)

    def test_times_and_hashes_over_times_may_differ(self, folder):
        assert self.changed(folder, "model.json", lambda text: text.replace(b"1.5", b"2.5").replace(b"aa", b"cc")) == []

    def test_figures_may_not(self, folder):
        assert self.changed(folder, "model.json", lambda text: text.replace(b"0.5", b"0.6")) == ["model.json"]

    @pytest.mark.parametrize("name", ["share", "share_kept", "unlikely", "latest_epoch", "timeless"])
    def test_nor_what_only_sounds_like_a_time(self, folder, name):
        (folder / "model.json").write_text(json.dumps({name: 0.5, "preparing_seconds": 1.5}))
        assert self.changed(folder, "model.json", lambda text: text.replace(b"0.5", b"0.6")) == ["model.json"]
        assert self.changed(folder, "model.json", lambda text: text.replace(b"1.5", b"2.5")) == []

    def test_nor_hashes_of_data(self, folder):
        assert self.changed(folder, "run.json", lambda text: text.replace(b"bb", b"cc")) == ["run.json"]

    def test_nor_a_bit_of_a_score(self, folder):
        file = "scores/cross/0000000000000000/00000.safetensors"

        def flipped(content):
            return content[:-4] + bytes([content[-4] ^ 1]) + content[-3:]

        assert self.changed(folder, file, flipped) == ["scores of cross"]

    def test_but_the_file_that_a_score_is_in(self, folder):
        before = contents_of(folder)
        stored = folder / "scores" / "cross" / ("0" * 16)
        (stored / "00000.safetensors").rename(stored / "00001.safetensors")
        assert differences(contents_of(folder), before) == []

    def test_nor_may_a_file_be_missing_or_new(self, folder):
        before = contents_of(folder)
        (folder / "run.json").rename(folder / "other.json")
        assert differences(contents_of(folder), before) == ["other.json", "run.json"]
