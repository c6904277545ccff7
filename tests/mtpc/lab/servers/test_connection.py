"""Coroutines that send requests: how an exit in one of them ends the others."""

from __future__ import annotations

import asyncio
import gc
import signal

import pytest

from mtpc.lab.servers.connection import run_requests
from mtpc.lab.servers.server import exit_on_signals


def test_a_signal_in_a_task_ends_all_without_a_message(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(0)
            if number == 1:
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            ended.append(number)

    async def all_work() -> None:
        await asyncio.gather(*map(work, range(3)))

    with exit_on_signals(), pytest.raises(SystemExit) as caught:
        run_requests(all_work())
    gc.collect()
    assert caught.value.code == 128 + signal.SIGTERM
    assert sorted(ended) == [0, 1, 2]
    assert not caplog.records


def test_another_error_that_nobody_awaits_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("a fault")

    async def start() -> None:
        asyncio.create_task(fail())  # noqa: RUF006
        await asyncio.sleep(0.01)

    run_requests(start())
    gc.collect()
    assert "a fault" in caplog.text
