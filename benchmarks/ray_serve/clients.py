"""Clients that ask one after the other, ask again where an answer fails, and compare what comes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import APIConnectionError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

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
        self.server = server_at(self.url)
        self.tasks = [asyncio.create_task(self._ask_on()) for _ in range(self.number)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self.ended.set()
        await asyncio.gather(*self.tasks)
        await self.server.close()

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
            status, text = await ask(self.server, self.model, prompt, temperature)
            self.tally.answered(status)
            if status == ANSWERED or retries == RETRIES:
                return status, text, retries
            retries += 1
            await asyncio.sleep(PAUSE)


def server_at(url: str) -> AsyncOpenAI:
    """A server whose failed requests are counted here, so that `openai` sends none again by itself."""
    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0, http_client=http)


async def ask(server: AsyncOpenAI, model: str, prompt: str, temperature: float) -> tuple[str, str]:
    """Status and text of one completion."""
    try:
        answer = await server.completions.create(
            model=model,
            prompt=prompt,
            max_tokens=TOKENS,
            temperature=temperature,
            extra_body={"ignore_eos": True},
        )
    except APIStatusError as error:
        return str(error.status_code), ""
    except APIConnectionError:
        return "broken", ""
    return ANSWERED, answer.choices[0].text


def check(tallies: Iterable[Tally]) -> None:
    """Whether every request was answered, and rightly.

    Errors: `MTPCError`, with how many were not.
    """
    lost, wrong = (sum(each) for each in zip(*((tally.lost, len(tally.wrong)) for tally in tallies), strict=True))
    if lost or wrong:
        raise MTPCError(f"{lost} requests were lost and {wrong} greedy texts are wrong.")


async def texts_of(url: str, model: str, prompts: Sequence[str]) -> dict[str, str]:
    """Greedy texts of a model, one request at a time."""
    async with server_at(url) as server:
        answers = [(prompt, await ask(server, model, prompt, 0.0)) for prompt in prompts]
    return {prompt: text for prompt, (_, text) in answers}
