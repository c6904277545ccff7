"""Clients that send one request after the other, retry failed requests, and compare greedy outputs."""

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
RETRIES, PAUSE = 5, 0.5  # most retries of a request, and seconds before each
ANSWERED = "200"
EVERY_SAMPLED = 4  # one request of this many is sampled, each time with other prompts, and its output is not compared


@dataclass
class Tally:
    """Counts of requests and their responses.

    Attributes:
        statuses: Number of responses by HTTP status; "broken" stands for a broken connection.
        seconds: Latency of each completed request, retries included.
        retries: Number of retries of each request that failed at first.
        compared: Number of compared greedy outputs.
        lost: Number of requests that failed with all retries.
        wrong: Greedy outputs that differ from the expected one, as (prompt, output).
        started: Time when counting began.
    """

    statuses: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    retries: list[int] = field(default_factory=list)
    compared: int = 0
    lost: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def answered(self, status: str) -> None:
        """Count a response."""
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def counts(self) -> dict[str, Any]:
        """Return the counts by name."""
        return {
            "responses by status": self.statuses,
            "retried requests": len(self.retries),
            "most retries of a request": max(self.retries, default=0),
            "lost requests": self.lost,
            "greedy outputs compared": self.compared,
            "wrong greedy outputs": len(self.wrong),
        }

    @property
    def tokens_per_second(self) -> float:
        """Throughput of all completed requests since counting began."""
        return len(self.seconds) * TOKENS / (time.monotonic() - self.started)


class Clients:
    """Clients of one model, which send requests as long as this context is open.

    Args:
        url: URL of the server.
        model: Name of the model.
        expected: Greedy output of the engine without a drafter, by prompt.
        number: Number of clients.
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

    def restart_counts(self) -> Tally:
        """Start new counts, and return them."""
        self.tally = Tally()
        return self.tally

    async def _ask_on(self) -> None:
        prompts = list(self.expected)
        while not self.ended.is_set():
            number = next(self.numbers)
            prompt = prompts[number % len(prompts)]
            sampled = (number + number // len(prompts)) % EVERY_SAMPLED == 0
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
        """Return the status and text of the response, and the number of retries."""
        retries = 0
        while True:
            status, text = await ask(self.server, self.model, prompt, temperature)
            self.tally.answered(status)
            if status == ANSWERED or retries == RETRIES:
                return status, text, retries
            retries += 1
            await asyncio.sleep(PAUSE)


def server_at(url: str) -> AsyncOpenAI:
    """Return a client without automatic retries of `openai`, because failed requests are counted here."""
    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0, http_client=http)


async def ask(server: AsyncOpenAI, model: str, prompt: str, temperature: float) -> tuple[str, str]:
    """Send one request, and return the status and text of the response."""
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
    """Check that no request was lost and no greedy output differs.

    Raises:
        MTPCError: Some are, with their numbers.
    """
    lost, wrong = (sum(each) for each in zip(*((tally.lost, len(tally.wrong)) for tally in tallies), strict=True))
    if lost or wrong:
        raise MTPCError(f"{lost} requests were lost, and {wrong} greedy outputs differ from those without a drafter.")


async def texts_of(url: str, model: str, prompts: Sequence[str]) -> dict[str, str]:
    """Return the greedy outputs of a model by prompt, one request at a time.

    Raises:
        MTPCError: A request fails.
    """
    texts = {}
    async with server_at(url) as server:
        for prompt in prompts:
            status, texts[prompt] = await ask(server, model, prompt, 0.0)
            if status != ANSWERED:
                raise MTPCError(f"{url} answered a request without a drafter with status {status}.")
    return texts
