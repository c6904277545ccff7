"""Clients that ask one after the other, ask again where an answer fails, and compare what comes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from mtpc.errors import MTPCError

TOKENS = 48
RETRIES, PAUSE = 5, 0.5  # seconds before a request is sent again
ANSWERED = "200"
EVERY_SAMPLED = 4  # of so many requests one is sampled: its text is not known in advance


@dataclass
class Tally:
    """What became of requests.

    statuses: of answers; "broken" where a connection was.  retries: of a request that failed.  lost: requests that no
    retry answered.  wrong: greedy texts other than the expected one, as (prompt, text).
    """

    statuses: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    retries: list[int] = field(default_factory=list)
    compared: int = 0
    lost: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def answered(self, status: str) -> None:
        """Count an answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def counts(self) -> dict[str, Any]:
        """What became of them, in words and numbers."""
        return {
            "answers": self.statuses,
            "requests that were asked again": len(self.retries),
            "most retries of one": max(self.retries, default=0),
            "lost": self.lost,
            "greedy texts compared": self.compared,
            "wrong": len(self.wrong),
        }

    @property
    def tokens_per_second(self) -> float:
        """Of all answers since the start."""
        return len(self.seconds) * TOKENS / (time.monotonic() - self.started)


class Clients:
    """So many clients of a model; a context in which they ask.

    expected: prompts, and what the engine says to them by itself.
    """

    def __init__(self, url: str, model: str, expected: Mapping[str, str], number: int) -> None:
        self.url, self.model, self.expected, self.number = url, model, expected, number
        self.tally = Tally()
        self.numbers = itertools.count()
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Clients:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)
        )
        self.tasks = [asyncio.create_task(self._ask_on()) for _ in range(self.number)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self.ended.set()
        await asyncio.gather(*self.tasks)
        await self.session.close()

    def count_anew(self) -> Tally:
        """What becomes of the answers from now on."""
        self.tally = Tally()
        return self.tally

    async def _ask_on(self) -> None:
        prompts = list(self.expected)
        while not self.ended.is_set():
            number = next(self.numbers)
            prompt = prompts[number % len(prompts)]
            sampled = number % EVERY_SAMPLED == 0
            started = time.monotonic()
            status, text, retries = await self._answer(prompt, 1.0 if sampled else 0.0)
            tally = self.tally
            tally.retries += [retries] * (retries > 0)
            tally.lost += status != ANSWERED
            if status == ANSWERED:
                tally.seconds.append(time.monotonic() - started)
                if not sampled:
                    tally.compared += 1
                    tally.wrong += [(prompt, text)] * (text != self.expected[prompt])

    async def _answer(self, prompt: str, temperature: float) -> tuple[str, str, int]:
        """Status and text of the answer, and how often the request was sent again."""
        retries = 0
        while True:
            status, text = await ask(self.session, self.url, self.model, prompt, temperature)
            self.tally.answered(status)
            if status == ANSWERED or retries == RETRIES:
                return status, text, retries
            retries += 1
            await asyncio.sleep(PAUSE)


async def ask(session: aiohttp.ClientSession, url: str, model: str, prompt: str, temperature: float) -> tuple[str, str]:
    """Status and text of one completion."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": temperature,
        "ignore_eos": True,
    }
    try:
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                return str(answer.status), ""
            return ANSWERED, (await answer.json())["choices"][0]["text"]
    except aiohttp.ClientError:
        return "broken", ""


def check(tallies: Iterable[Tally]) -> None:
    """Whether every request was answered, and rightly.

    Errors: `MTPCError`, with how many were not.
    """
    lost, wrong = (sum(each) for each in zip(*((tally.lost, len(tally.wrong)) for tally in tallies), strict=True))
    if lost or wrong:
        raise MTPCError(f"{lost} requests were lost and {wrong} greedy texts are wrong.")


async def texts_of(url: str, model: str, prompts: Sequence[str]) -> dict[str, str]:
    """Greedy texts of a model, one request at a time."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        answers = [(prompt, await ask(session, url, model, prompt, 0.0)) for prompt in prompts]
    return {prompt: text for prompt, (_, text) in answers}
