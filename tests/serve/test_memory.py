"""What the server does about free memory."""

import platform
import subprocess
import sys
import threading
import time

import pytest

from cascader.serve import server as server_module

#: Blocks of a size that glibc keeps in its heap once a larger one was freed; the last one stays, at its end.
BLOCKS = """
from pathlib import Path
import numpy as np
from cascader.serve.server import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

before = resident()
np.ones(16 << 20, np.uint8)
blocks = [np.ones(8 << 20, np.uint8) for _ in range(16)]
del blocks[:-1]
print(resident() - before, give_back_memory(), resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory in their own ways")
def test_memory_that_is_free_goes_back_to_the_system():
    found = subprocess.run([sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True)
    before, is_glibc, after = found.stdout.split()
    assert int(before) > 100
    assert is_glibc == "True"
    assert int(after) < 50


def test_memory_is_given_back_every_few_seconds_until_the_server_ends(monkeypatch):
    given = threading.Semaphore(0)
    monkeypatch.setattr(server_module, "_SECONDS_BETWEEN_RETURNS", 0.001)
    monkeypatch.setattr(server_module, "give_back_memory", lambda: given.release() or True)
    with server_module._giving_back_memory():
        assert all(given.acquire(timeout=10) for _ in range(3))
    while given.acquire(blocking=False):
        pass
    assert not given.acquire(timeout=0.05)


def test_where_memory_cannot_be_given_back_nobody_tries_again(monkeypatch):
    tried = []
    monkeypatch.setattr(server_module, "_SECONDS_BETWEEN_RETURNS", 0.0)
    monkeypatch.setattr(server_module.ctypes, "CDLL", lambda _: tried.append(1))  # has no malloc_trim
    with server_module._giving_back_memory():
        time.sleep(0.05)
    assert tried == [1]
