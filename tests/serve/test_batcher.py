"""One thread answers what waits for it, together."""

import threading
import time
from concurrent.futures import wait

import pytest

from cascader.serve.batcher import Batcher, Batching, BusyError


class Work:
    """Doubles numbers, and remembers in which blocks; it can be held up, and does not like 13."""

    def __init__(self):
        self.blocks, self.goes_on = [], threading.Event()
        self.goes_on.set()

    def __call__(self, kind, asked):
        self.goes_on.wait()
        self.blocks.append((kind, asked))
        if 13 in asked:
            raise ValueError("thirteen")
        return [2 * number for number in asked]


@pytest.fixture
def work():
    return Work()


def batcher(work, most=8, waiting=100, window=0.05):
    return Batcher(work, lambda kind: most, Batching(window_seconds=window), waiting)


def test_what_comes_together_is_answered_together_by_kind(work):
    batches = batcher(work)
    futures = [batches.submit("even" if i % 2 == 0 else "odd", i) for i in range(6)]
    assert [future.result(timeout=10) for future in futures] == [0, 2, 4, 6, 8, 10]
    assert work.blocks == [("even", [0, 2, 4]), ("odd", [1, 3, 5])]
    batches.close()


def test_blocks_are_no_larger_than_their_kind_may_be(work):
    batches = batcher(work, most=2)
    wait([batches.submit("all", i) for i in range(5)], timeout=10)
    assert [asked for _, asked in work.blocks] == [[0, 1], [2, 3], [4]]
    batches.close()


def test_one_bad_question_does_not_spoil_the_others(work):
    batches = batcher(work)
    good, bad, other = (batches.submit("all", i) for i in (1, 13, 2))
    assert (good.result(timeout=10), other.result(timeout=10)) == (2, 4)
    with pytest.raises(ValueError, match="thirteen"):
        bad.result(timeout=10)
    batches.close()


def test_who_no_longer_waits_is_not_answered(work):
    batches = batcher(work)
    work.goes_on.clear()
    first = batches.submit("first", 0)
    while not first.running():
        time.sleep(0.001)
    given_up, wanted = batches.submit("all", 1), batches.submit("all", 2)
    assert given_up.cancel()
    work.goes_on.set()
    assert wanted.result(timeout=10) == 4
    assert work.blocks == [("first", [0]), ("all", [2])]
    batches.close()


def test_when_it_is_full_and_when_it_is_closed_it_refuses(work):
    batches = batcher(work, waiting=2, window=0)
    work.goes_on.clear()
    first = batches.submit("all", 0)
    while not first.running():
        time.sleep(0.001)
    left = [batches.submit("all", i) for i in (1, 2)]
    with pytest.raises(BusyError, match="2 questions are waiting already"):
        batches.submit("all", 3)
    closing = threading.Thread(target=batches.close)
    closing.start()
    time.sleep(0.05)
    work.goes_on.set()
    closing.join(timeout=10)
    assert first.result() == 0
    for future in left:
        with pytest.raises(BusyError, match="shutting down"):
            future.result(timeout=10)
    with pytest.raises(BusyError, match="shutting down"):
        batches.submit("all", 4)
