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


class TestInANotebook:
    @pytest.fixture
    def shown(self, monkeypatch):
        """What the output of a cell was, one after the other, in place."""
        ipython = pytest.importorskip("IPython.display")
        texts = []

        class Handle:
            def update(self, content, raw):
                texts.append(content["text/plain"])

        def first(content, raw, display_id):
            texts.append(content["text/plain"])
            return Handle()

        kernel = type("ZMQInteractiveShell", (), {"__module__": "ipykernel.zmqshell"})
        monkeypatch.setattr("IPython.get_ipython", kernel)
        monkeypatch.setattr(ipython, "display", first)
        return texts

    @pytest.fixture
    def clock(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
        return now

    def test_one_line_is_replaced_in_place(self, shown, clock):
        with stage("kge"), progress("training", total=4, unit="epochs") as advance:
            for _ in range(4):
                clock[0] += 2
                advance(1, "loss 3.21")
        assert shown[1] == f"{'█' * 15}{'░' * 15} kge: training: 2 of 4 epochs, about 4 s left, loss 3.21"
        assert shown[-1] == f"{'█' * 30} kge: training: 4 epochs, 8 s"

    def test_what_takes_a_moment_shows_nothing(self, shown, clock):
        with progress("ranking", total=4) as advance:
            advance(4)
        assert shown == []

    def test_events_are_printed_but_for_details(self, shown, capsys):
        emit("trained", "Trained kge.")
        emit("settings", "Settings of kge:", ["setting", "value"], [["dim", "4"]])
        assert capsys.readouterr().out == "Trained kge.\n"


CELLS = (
    """
import os, pathlib, signal, threading, time, cascader
facts = [(f"drug {i}", "treats", f"disease {j}") for i in range(8) for j in range(8) if (i + j) % 3]
kg = cascader.KnowledgeGraph.from_triples(facts[:-8], valid=facts[-8:-4], test=facts[-4:])
options = dict(tiers="plausibility,kge", settings={"kge": {"dim": 8, "epochs": 100_000, "patience": 100_000}})
def press_stop():
    while not (path := pathlib.Path("run/events.jsonl")).exists() or "validated" not in path.read_text():
        time.sleep(0.1)
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press_stop).start()
""",
    'cascader.fit(kg, "run", **options)',
    'options["settings"]["kge"]["epochs"] = 3; cascader.load_run("run").predict("drug 0", "treats", top=1)',
    'cascader.fit(kg, "run", **options)',
    'cascader.fit(kg, "texts", tiers="kge,dual", settings={"kge": {"dim": 4, "epochs": 1}, "dual": {"epochs": 1}})',
)


@pytest.mark.slow
def test_a_real_notebook_is_interrupted_and_goes_on(tmp_path):
    """The stop button sends SIGINT to the kernel, as a thread of the first cell does."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(source.strip()) for source in CELLS])
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, allow_errors=True, resources=place).execute()
    _, interrupted, asked, resumed, read = (cell["outputs"] for cell in notebook.cells)
    printed = "".join(output.get("text", "") for output in interrupted)
    assert "You may ask already" in printed
    assert "Interrupted. What is finished is kept. The same call goes on from there" in printed
    assert interrupted[-1]["ename"] == "KeyboardInterrupt"
    bars = [output["data"]["text/plain"] for output in interrupted if output["output_type"] == "display_data"]
    assert ["epochs" in bar for bar in bars] == [True]
    assert all(output["output_type"] != "error" for output in (*asked, *resumed, *read))
    assert "Took" in "".join(output.get("text", "") for output in resumed)
    assert [output["text"] for output in read if output.get("name") == "stderr"] == []
