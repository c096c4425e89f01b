import io
import sys
from contextlib import contextmanager

import pytest

from cascader.display import progress


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
