"""Processes that are forked: as those that a shell starts, but for what they need not load."""

import os
import signal
import sys
import time

import pytest

from tests.processes import Forked, command, finished

pytestmark = pytest.mark.slow


def what_it_finds():
    sys.stdout.write(f"{os.environ['FOUND']} in {os.getcwd()}")  # noqa: PTH109
    sys.stderr.write(f", with torch: {'torch' in sys.modules}")
    return 3


def test_a_forked_process_has_this_environment_and_folder_and_the_libraries(tmp_path, monkeypatch):
    monkeypatch.setenv("FOUND", "found")
    monkeypatch.chdir(tmp_path)
    assert finished(what_it_finds) == (3, f"found in {tmp_path}, with torch: True")
    assert finished(what_it_finds, errors=tmp_path / "errors") == (3, f"found in {tmp_path}")
    assert (tmp_path / "errors").read_text() == ", with torch: True"


def test_a_command_line_ends_with_its_code():
    code, printed = finished(command, "data", "check", "nowhere.tsv")
    assert code == 2
    assert printed.startswith("error: there is no file or folder nowhere.tsv")


def test_a_signal_is_its_exit_code():
    with Forked(time.sleep, 60) as process:
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
