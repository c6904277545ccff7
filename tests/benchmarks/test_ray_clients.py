"""What the clients of Ray Serve count of a server that answers some requests badly."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest

from benchmarks.ray_serve.clients import RETRIES, Clients, Tally, texts_of
from mtpc.errors import MTPCError

EXPECTED = {"a": "A", "b": "B", "c": "C"}


@contextmanager
def serving(statuses: Iterator[int], texts: Mapping[str, str]) -> Iterator[tuple[str, SimpleQueue[None]]]:
    """Run a server that answers with these statuses, then 200; yield its URL, and an item for each request."""
    sent: SimpleQueue[None] = SimpleQueue()
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Print nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.put(None)
            with turn:
                status = next(statuses, 200)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"text": texts[body["prompt"]]}]}).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()


async def counted(
    statuses: Iterator[int],
    texts: Mapping[str, str],
    enough: int,
    clients: int = 2,
    expected: Mapping[str, str] = EXPECTED,
) -> Tally:
    """Return what clients count until `enough` requests have been sent."""
    with serving(statuses, texts) as (url, sent):
        async with Clients(url, "model", expected, clients) as asking:
            for _ in range(enough):
                await asyncio.to_thread(sent.get)
        return asking.tally


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.ray_serve.clients.PAUSE", 0.0)


def test_an_honest_server_loses_nothing() -> None:
    tally = asyncio.run(counted(iter(()), EXPECTED, 12))
    assert set(tally.statuses) == {"200"}
    assert (tally.retries, tally.lost, tally.wrong) == ([], 0, [])
    assert 0 < tally.compared < len(tally.seconds)  # what is sampled is not compared


def test_every_prompt_is_compared() -> None:
    """Also where their number is a multiple of the rhythm of sampled requests."""
    for number in (4, 6, 24):
        prompts = {str(prompt): str(prompt) for prompt in range(number)}
        wrong = dict.fromkeys(prompts, "?")
        tally = asyncio.run(counted(iter(()), wrong, 2 * number, expected=prompts))
        assert {prompt for prompt, _ in tally.wrong} == set(prompts)


def test_a_failed_request_is_no_expected_output() -> None:
    with serving(iter((200, 500)), EXPECTED) as (url, _), pytest.raises(MTPCError, match="with status 500"):
        asyncio.run(texts_of(url, "model", ["a", "b"]))


def test_a_request_that_fails_is_sent_again_and_counted() -> None:
    tally = asyncio.run(counted(iter((200, 500, 200, 500)), EXPECTED, 12))
    assert tally.statuses["500"] == 2
    assert (sum(tally.retries), tally.lost) == (2, 0)


def test_a_request_that_never_succeeds_is_lost() -> None:
    refused = 2 * (RETRIES + 1)  # two requests of one client; of two clients, three requests could share them
    tally = asyncio.run(counted(iter((503,) * refused), EXPECTED, refused + 2, clients=1))
    assert tally.lost == 2


def test_another_text_is_wrong() -> None:
    tally = asyncio.run(counted(iter(()), EXPECTED | {"b": "?"}, 12))
    assert {prompt for prompt, _ in tally.wrong} == {"b"}
