"""Clients who leave: nobody works for them any longer."""

import asyncio
import json
import threading

import pytest

from cascader.errors import DataError
from cascader.runs import load_run
from cascader.serve import create_app
from cascader.serve.batcher import AbandonedError
from cascader.serve.budget_levels import CountingScorer


class Client:
    """A client that sends a request to an application, and leaves when it wants to."""

    def __init__(self, app, path, body):
        self._messages = asyncio.Queue()
        self.sent, self.body = [], json.dumps(body).encode()
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "http"}
        scope |= {"headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}
        self.request = asyncio.create_task(app(scope, self._messages.get, self._send))

    async def _send(self, message):
        self.sent.append(message)

    def send(self, content, more_body=False):
        self._messages.put_nowait({"type": "http.request", "body": content, "more_body": more_body})

    def leave(self):
        self._messages.put_nowait({"type": "http.disconnect"})


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


@pytest.fixture
def app(plain_folder):
    app = create_app(load_run(plain_folder))
    yield app
    app.state.service.close()


def test_who_leaves_while_others_are_answered_is_never_answered(app, held_up):
    async def leave_while_waiting():
        first = Client(app, "/api/answer", {"entity": "e0", "relation": "of"})
        first.send(first.body)
        await until(work.has_begun.is_set)
        body = {"questions": [{"entity": f"e{i}", "relation": "of"} for i in range(1, 9)]}
        leaving = [Client(app, "/api/answer", body["questions"][0]), Client(app, "/api/batch", body)]
        for client in leaving:
            client.send(client.body)
        await until(lambda: app.state.service.waiting == 9)
        for client in leaving:
            client.leave()
            await client.request
            assert client.sent == []
        assert app.state.service.waiting == 0
        work.goes_on.set()
        await first.request
        assert first.sent[0]["status"] == 200

    work = held_up()
    asyncio.run(leave_while_waiting())
    assert work.asked == [[0]]


def test_who_leaves_before_its_request_is_whole_has_asked_nothing(app, caplog):
    async def leave_early():
        client = Client(app, "/api/answer", {"entity": "e0", "relation": "of"})
        client.send(client.body, more_body=True)
        client.leave()
        await client.request
        assert client.sent == []

    with caplog.at_level("INFO", "cascader.serve.requests"):
        asyncio.run(leave_early())
    (line,) = (json.loads(record.message) for record in caplog.records if record.name == "cascader.serve.requests")
    assert (line["status"], line["questions"]) == (499, 0)


def test_pairs_are_not_read_for_those_who_have_left(words_folder, monkeypatch):
    """The first pieces of a long question are read, and then no more."""
    app = create_app(load_run(words_folder))
    (scorer,) = app.state.service._counting
    monkeypatch.setattr("cascader.serve.budget_levels._PAIRS_AT_ONCE", 1)
    read, score = [], CountingScorer._score

    async def leave_while_pairs_are_read():
        client = Client(app, "/api/answer", {"entity": "e0", "relation": "of"})  # five pairs
        loop, has_left = asyncio.get_running_loop(), threading.Event()
        client.request.add_done_callback(lambda _: has_left.set())

        def score_and_leave(*given):
            read.append(given)
            if len(read) == 2:
                loop.call_soon_threadsafe(client.leave)
                assert has_left.wait(60)
            return score(*given)

        monkeypatch.setattr(CountingScorer, "_score", score_and_leave)
        client.send(client.body)
        await client.request
        assert client.sent == []

    asyncio.run(leave_while_pairs_are_read())
    app.state.service.close()
    assert len(read) == 2
    with pytest.raises(AbandonedError):
        scorer.check()


def test_a_mistake_is_still_told_to_who_stays(app, monkeypatch):
    def fail(*_, **__):
        raise DataError("no such thing")

    async def ask():
        client = Client(app, "/api/answer", {"entity": "e0", "relation": "of"})
        client.send(client.body)
        await client.request
        return client.sent[0]["status"]

    monkeypatch.setattr("cascader.runs.Predictor.answer", fail)
    assert asyncio.run(ask()) == 422
