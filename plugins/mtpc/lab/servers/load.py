"""Completes prompts at a fixed concurrency and times what comes back: over HTTP, or inside an offline engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.servers.connection import Connection, answers_of
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.text.prompts import Prompt

GOLDEN = (5**0.5 - 1) / 2  # multiples of it, without what is before the point, are spread evenly


class CountsInAnswers(NamedTuple):
    """How an engine tells in its answers what became of its drafts."""

    ask: dict[str, Any]  # goes into every request
    read: Callable[[dict[str, Any]], DraftCounters | None]  # from an event of the stream


@dataclass(frozen=True)
class Completion:
    """One answered request; times in seconds since it was sent."""

    prompt: Prompt
    text: str
    tokens: int
    first: float  # until the first token (TTFT)
    seconds: float  # until the last
    drafts: DraftCounters = NO_DRAFTS  # where the engine counts in its answers
    steps: int = 0  # target forward passes that brought its tokens, where the engine tells

    @property
    def per_token(self) -> float:
        """Seconds per token after the first (TPOT)."""
        return (self.seconds - self.first) / max(1, self.tokens - 1)


@dataclass(frozen=True)
class Load:
    """The answers to a run of requests, in the order of the prompts, and the wall time of the whole run."""

    completions: tuple[Completion, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens that came back."""
        return sum(completion.tokens for completion in self.completions)

    @property
    def drafts(self) -> DraftCounters:
        """What the answers say of their drafts; none where the engine counts elsewhere."""
        return reduce(add, (completion.drafts for completion in self.completions))

    @property
    def in_flight(self) -> float:
        """Requests that were being served at a time, on average."""
        return sum(completion.seconds for completion in self.completions) / self.seconds


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled; ``ignore_eos`` makes every one of the same length.

    spread: completions are at most half of ``max_tokens`` to all of it long, the same ones in every run: requests that
    begin together then end one by one, as a server's do.
    """

    max_tokens: int
    temperature: float
    ignore_eos: bool = True
    spread: bool = False

    def limits(self, count: int) -> list[int]:
        """The most tokens of so many completions; spread, any few in a row are evenly."""
        shares = [(1.0 + number * GOLDEN % 1.0) / 2 if self.spread else 1.0 for number in range(1, count + 1)]
        return [round(self.max_tokens * share) for share in shares]

    def body(self, model: str, prompt: Prompt) -> dict[str, Any]:
        """The request's JSON."""
        return {
            "model": model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def complete(connection: Connection, body: dict[str, Any], counts: CountsInAnswers | None = None) -> Completion:
    """Stream one completion of a request's JSON.

    Errors: `MTPCError` when the server refuses the request or reports an error on the way.
    """
    started = time.perf_counter()
    first, last, tokens, pieces, drafts = 0.0, 0.0, 0, [], NO_DRAFTS
    async for event in connection.events(body | (counts.ask if counts else {})):
        if event.get("choices"):
            last = time.perf_counter() - started
            first = first or last
            pieces.append(event["choices"][0]["text"])
        if event.get("usage"):
            tokens = int(event["usage"]["completion_tokens"])
        if counts is not None:
            drafts = counts.read(event) or drafts
    if not tokens:
        raise MTPCError(f"{connection.url} did not report how many tokens it completed.")
    return Completion(body["prompt"], "".join(pieces), tokens, first, last, drafts)


async def _run(url: str, bodies: Sequence[dict[str, Any]], concurrency: int, counts: CountsInAnswers | None) -> Load:
    async with Connection(url) as connection:
        started = time.perf_counter()
        completions = await answers_of(bodies, lambda body: complete(connection, body, counts), concurrency)
        seconds = time.perf_counter() - started
    return Load(tuple(completions), seconds)


def run_load(
    url: str,
    model: str,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    concurrency: int,
    counts: CountsInAnswers | None = None,
) -> Load:
    """Complete every prompt, ``concurrency`` at a time: whenever one ends, the next one is sent.

    Errors: `MTPCError` when the server cannot be reached, refuses a request or breaks off.
    """
    limits = sampling.limits(len(prompts))
    bodies = [sampling.body(model, prompt) | {"max_tokens": most} for prompt, most in zip(prompts, limits, strict=True)]
    return asyncio.run(_run(url, bodies, concurrency, counts))


async def _run_there(url: str, body: dict[str, Any]) -> bytes:
    async with Connection(url) as connection:
        return await connection.post("/run", body)


def run_offline(url: str, model: str, prompts: Sequence[Prompt], sampling: Sampling, concurrency: int) -> Load:
    """The same in an offline engine: its process gets all prompts at once and keeps time itself.

    Errors: `MTPCError` when the process cannot be reached or the engine fails.
    """
    asked = {"prompts": list(prompts), "limits": sampling.limits(len(prompts)), "concurrency": concurrency}
    reply = json.loads(asyncio.run(_run_there(url, asked | sampling.body(model, ""))))
    answers = zip(prompts, reply["completions"], strict=True)
    return Load(tuple(Completion(prompt, **answer) for prompt, answer in answers), reply["seconds"])
