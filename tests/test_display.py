import io
import sys
from contextlib import contextmanager

import pytest

from cascader import display
from cascader.display import Event, emit, listening, log_line, no_progress, progress, recording, stage


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextmanager
def a_terminal(monkeypatch):
    """Within the test itself: pytest puts its own stream back between a fixture and the test."""
    stream = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        patched.setenv("TERM", "xterm")
        yield stream


def test_nothing_is_shown_where_there_is_no_terminal(capsys):
    with progress("training", total=2) as advance:
        advance(1, "loss 3")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("unit", ["epochs", "bytes"])
def test_a_terminal_sees_what_is_done_and_the_note(monkeypatch, unit):
    with a_terminal(monkeypatch) as terminal, progress("training", total=2, unit=unit, done=1) as advance:
        advance(1, "loss 3.21")
    assert "training" in terminal.getvalue()
    assert "loss 3.21" in terminal.getvalue()


def test_the_outer_bar_is_shown_alone(monkeypatch):
    with a_terminal(monkeypatch) as terminal:
        with progress("training", total=1) as outer, progress("ranking", total=1) as inner:
            inner(1)
            outer(1)
        assert "ranking" not in terminal.getvalue()
        with progress("ranking", total=1) as after:
            after(1)
        assert "ranking" in terminal.getvalue()


class TestWithoutATerminal:
    @pytest.fixture
    def heard(self):
        events = []
        with listening(events.append):
            yield events

    @pytest.fixture
    def clock(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
        return now

    def test_a_line_is_reported_every_half_minute(self, heard, clock):
        with stage("kge"), progress("training", total=10, unit="epochs") as advance:
            for _ in range(10):
                clock[0] += 12
                advance(1, "loss 3.21")
        assert [event.text for event in heard] == [
            "kge: training: 3 of 10 epochs, about 1 min 24 s left, loss 3.21",
            "kge: training: 6 of 10 epochs, about 48 s left, loss 3.21",
            "kge: training: 9 of 10 epochs, about 12 s left, loss 3.21",
        ]
        assert (heard[0].kind, heard[0].stage, heard[0].values) == ("progress", "kge", {"done": 3, "total": 10})

    def test_a_step_within_an_epoch_is_reason_enough(self, heard, clock):
        with progress("training", total=2, unit="epochs") as advance:
            clock[0] = 31
            advance(0, "step 3 of 8")
        assert [event.text for event in heard] == ["training: 0 of 2 epochs, step 3 of 8"]

    def test_what_takes_a_moment_is_not_worth_a_line(self, heard, clock):
        with progress("training", total=2) as advance:
            advance(2)
        assert heard == []

    def test_nothing_is_reported_where_no_progress_is_wanted(self, heard, clock):
        with no_progress(), progress("training", total=2) as advance:
            clock[0] = 60
            advance(1)
        assert heard == []


def test_who_records_takes_nothing_from_those_who_would_be_shown_it(caplog):
    kept = []
    with caplog.at_level("INFO"), recording(kept.append):
        emit("trained", "Trained.")
    assert ([event.text for event in kept], caplog.messages) == (["Trained."], ["Trained."])


def test_a_line_of_a_log_has_the_table_in_columns_and_no_command_to_a_terminal():
    event = Event("plan", "The \x1b[31mplan:", ("tier", "model"), (("kge", "complex"), ("plausibility", "p")))
    line, *table = log_line(event, "text").splitlines()
    assert line.endswith("  The  [31mplan:")
    assert table == ["tier          model", "kge           complex", "plausibility  p"]
