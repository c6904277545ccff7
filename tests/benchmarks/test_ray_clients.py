"""What the clients of Ray Serve count of a server that answers some requests badly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import web

from benchmarks.ray_serve.clients import RETRIES, Clients, Tally

EXPECTED = {"a": "A", "b": "B", "c": "C"}


async def counted(statuses: Iterator[int], texts: dict[str, str], enough: int) -> Tally:
    """What two clients count until so many requests have been sent."""
    sent = asyncio.Semaphore(0)

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        sent.release()
        status = next(statuses, 200)
        return web.json_response({"choices": [{"text": texts[body["prompt"]]}]}, status=status)

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with Clients(f"http://127.0.0.1:{port}", "model", EXPECTED, 2) as clients:
            for _ in range(enough):
                await sent.acquire()
        return clients.tally
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.ray_serve.clients.PAUSE", 0.0)


def test_an_honest_server_loses_nothing() -> None:
    tally = asyncio.run(counted(iter(()), EXPECTED, 12))
    assert set(tally.statuses) == {"200"}
    assert (tally.retries, tally.lost, tally.wrong) == ([], 0, [])
    assert 0 < tally.compared < len(tally.seconds)  # what is sampled is not compared


def test_a_request_that_fails_is_sent_again_and_counted() -> None:
    tally = asyncio.run(counted(iter((200, 500, 200, 500)), EXPECTED, 12))
    assert tally.statuses["500"] == 2
    assert (sum(tally.retries), tally.lost) == (2, 0)


def test_a_request_that_never_succeeds_is_lost() -> None:
    tally = asyncio.run(counted(iter((503,) * 2 * (RETRIES + 1)), EXPECTED, 2 * (RETRIES + 1) + 2))
    assert tally.lost == 2


def test_another_text_is_wrong() -> None:
    tally = asyncio.run(counted(iter(()), EXPECTED | {"b": "?"}, 12))
    assert {prompt for prompt, _ in tally.wrong} == {"b"}
