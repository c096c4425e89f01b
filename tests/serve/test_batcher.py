"""One thread answers what waits for it, together."""

import threading
import time
from concurrent.futures import wait

import pytest

from cascader.serve.batcher import AbandonedError, Batcher, Batching, BusyError


class Work:
    """Doubles numbers, and remembers in which blocks; it can be held up, and does not like 13."""

    def __init__(self):
        self.blocks, self.goes_on = [], threading.Event()
        self.goes_on.set()

    def __call__(self, kind, asked, check):
        self.goes_on.wait()
        check()
        self.blocks.append((kind, asked))
        if 13 in asked:
            raise ValueError("thirteen")
        return [2 * number for number in asked]


@pytest.fixture
def work():
    return Work()


def batcher(work, most=8, limit=100, window=0.05):
    return Batcher(work, lambda kind: most, Batching(window_seconds=window), limit)


def held_up(batches, work):
    """A job that is being worked on, and stays so until the work goes on."""
    work.goes_on.clear()
    job = batches.submit("first", 0)
    while not job.future.running():
        time.sleep(0.001)
    return job


def test_what_comes_together_is_answered_together_by_kind(work):
    batches = batcher(work)
    futures = [batches.submit("even" if i % 2 == 0 else "odd", i).future for i in range(6)]
    assert [future.result(timeout=10) for future in futures] == [0, 2, 4, 6, 8, 10]
    assert work.blocks == [("even", [0, 2, 4]), ("odd", [1, 3, 5])]
    batches.close(10)


def test_blocks_are_no_larger_than_their_kind_may_be(work):
    batches = batcher(work, most=2)
    wait([batches.submit("all", i).future for i in range(5)], timeout=10)
    assert [asked for _, asked in work.blocks] == [[0, 1], [2, 3], [4]]
    batches.close(10)


def test_one_bad_question_does_not_spoil_the_others(work):
    batches = batcher(work)
    good, bad, other = (batches.submit("all", i).future for i in (1, 13, 2))
    assert (good.result(timeout=10), other.result(timeout=10)) == (2, 4)
    with pytest.raises(ValueError, match="thirteen"):
        bad.result(timeout=10)
    batches.close(10)


def test_nobody_waits_for_those_who_came_later(work):
    """A question with another budget waited for all later ones of the first budget, however many blocks they took."""
    batches = batcher(work, most=2)
    held_up(batches, work)
    jobs = [batches.submit(kind, i) for i, kind in enumerate(["a", "b", "a", "a", "a"])]
    work.goes_on.set()
    wait([job.future for job in jobs], timeout=10)
    assert work.blocks[1:] == [("a", [0, 2]), ("b", [1]), ("a", [3, 4])]
    batches.close(10)


def test_who_no_longer_waits_is_not_answered_and_takes_no_place(work):
    batches = batcher(work, limit=2)
    held_up(batches, work)
    given_up, wanted = batches.submit("all", 1), batches.submit("all", 2)
    given_up.abandon()
    assert len(batches) == 1
    batches.submit("all", 3)
    work.goes_on.set()
    assert wanted.future.result(timeout=10) == 4
    assert work.blocks == [("first", [0]), ("all", [2, 3])]
    batches.close(10)


def test_what_has_begun_is_cut_short_once_nobody_waits_for_it(work):
    batches = batcher(work)
    job = held_up(batches, work)
    job.abandon()
    work.goes_on.set()
    with pytest.raises(AbandonedError):
        job.future.result(timeout=10)
    assert batches.submit("all", 1).future.result(timeout=10) == 2
    assert work.blocks == [("all", [1])]
    batches.close(10)


def test_a_block_is_finished_for_those_who_still_wait(work):
    batches = batcher(work)
    first = held_up(batches, work)
    left, wanted = batches.submit("all", 1), batches.submit("all", 2)
    go_on, work.goes_on = work.goes_on, threading.Event()
    go_on.set()
    first.future.result(timeout=10)
    while not left.future.running():
        time.sleep(0.001)
    left.abandon()
    work.goes_on.set()
    assert wanted.future.result(timeout=10) == 4
    batches.close(10)


def test_when_it_is_full_it_refuses(work):
    batches = batcher(work, limit=2, window=0)
    held_up(batches, work)
    for i in (1, 2):
        batches.submit("all", i)
    with pytest.raises(BusyError, match="2 questions are waiting already"):
        batches.submit("all", 3)
    work.goes_on.set()
    batches.close(10)


def test_when_it_stops_it_finishes_what_it_has_begun_and_refuses_the_rest_at_once(work):
    batches = batcher(work)
    first = held_up(batches, work)
    left = [batches.submit("all", i) for i in (1, 2)]
    batches.stop()
    for job in left:
        with pytest.raises(BusyError, match="shutting down"):
            job.future.result(timeout=0)
    with pytest.raises(BusyError, match="shutting down"):
        batches.submit("all", 4)
    work.goes_on.set()
    assert first.future.result(timeout=10) == 0
    batches.close(10)


def test_when_it_is_closed_it_cuts_short_what_it_has_begun_and_waits_only_so_long(work):
    batches = batcher(work)
    first = held_up(batches, work)
    batches.close(0.01)
    assert first.future.running()
    work.goes_on.set()
    with pytest.raises(AbandonedError):
        first.future.result(timeout=10)
