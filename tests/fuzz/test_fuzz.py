"""Fuzzing finds what is planted; and a few hundred of its cases, drawn from fixed seeds, find nothing."""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz import workers
from tests.fuzz.__main__ import Schedule, _verdict
from tests.fuzz.engine import Batch, fuzz, keep
from tests.fuzz.material import make_material
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.targets import SHARES, cases_of
from tests.processes import forking

CASES = 15

# A warning is no failure here: users see a line more.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def sandbox(tmp_path):
    with Sandbox(tmp_path / "sandbox").entered() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return make_material(tmp_path_factory.mktemp("material")).folder


@pytest.mark.slow
@pytest.mark.parametrize("target", SHARES)
def test_every_case_ends_in_an_answer_or_in_a_sentence(target, material, sandbox):
    ended = Counter()
    failures = fuzz(
        cases_of(target, material), Batch(target, 0, CASES), sandbox, ended=lambda outcome: ended.update([outcome.kind])
    )
    assert [failure.outcome.detail for failure in failures] == []
    assert ended.total() == CASES
    assert ended["ok"] > 0
    assert ended["sentence"] > 0


def numbers(low, high):
    """Planted cases, drawn from these numbers."""
    return cases_of("planted", Path(f"{low}-{high}"))


def test_a_traceback_is_found_and_its_input_made_small(sandbox, tmp_path):
    batch = Batch("planted", 0, 200)
    (failure,) = fuzz(numbers(100, 10_000), batch, sandbox)
    assert failure.outcome.kind == "traceback"
    assert "ZeroDivisionError: 901 is above 900" in failure.outcome.detail
    kept = keep(tmp_path / "kept", batch, failure)
    assert (kept / "input" / "number.txt").read_text() == "901"
    assert "make fuzz TARGET=planted SEED=0 CASES=200" in (kept / "failure.txt").read_text()


def test_the_same_seed_draws_the_same_cases(sandbox):
    def drawn(seed):
        cases = []
        fuzz(numbers(100, 900), Batch("planted", seed, 50), sandbox, began=lambda case: cases.append(case.number))
        return cases

    assert drawn(1) == drawn(1)
    assert len(drawn(1)) == 50
    assert drawn(1) != drawn(2)


def test_a_failure_that_is_known_is_counted_and_left_as_it_is(sandbox):
    (known,) = fuzz(numbers(100, 10_000), Batch("planted", 0, 50), sandbox)
    ended = Counter()
    batch = Batch("planted", 0, 50, {known.outcome.signature})
    assert fuzz(numbers(100, 10_000), batch, sandbox, ended=lambda outcome: ended.update([outcome.kind])) == []
    assert ended["traceback"] > 0
    assert ended.total() == 50


def performed(tmp_path, numbers, cases):
    """Let workers perform planted cases; return the tally and what was found."""
    schedule = Schedule({"planted": 1}, cases, 0, Path(numbers), tmp_path / "failures")
    found = []
    for news in workers.perform(schedule, tmp_path / "workers", 2, time.monotonic() + 120):
        schedule.take(news)
        found += [news] if isinstance(news, workers.Found) else []
    return schedule.tallies["planted"], found


@pytest.mark.slow
def test_what_hangs_is_ended_and_the_other_cases_are_performed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "HANG_SECONDS", 1.0)
    tally, found = performed(tmp_path, "12-13", 2)
    assert tally.kinds["hang"] > 0
    assert tally.kinds.total() == 2
    assert "in perform" in found[0].outcome.detail  # where it was
    assert (found[0].kept / "input" / "number.txt").read_text() == "13"
    assert "to repeat it: make fuzz TARGET=planted SEED=" in capsys.readouterr().out


@pytest.mark.slow
def test_what_crashes_is_a_traceback_and_its_worker_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_CONTEXT", forking())  # four of them, which would load all libraries
    tally, found = performed(tmp_path, "14-14", 2)
    assert tally.kinds["traceback"] == 2
    assert "crash -11" in found[0].outcome.signature
    assert (found[0].kept / "input" / "number.txt").read_text() == "14"


def test_cases_that_there_was_no_time_for_are_no_success(tmp_path, capsys):
    schedule = Schedule({"planted": 1}, 10, 0, tmp_path, tmp_path)
    assert _verdict(schedule, 0) == 0
    assert _verdict(schedule, 10) == 1
    assert "FAILED: the time was up after 0 of 10 cases." in capsys.readouterr().out
