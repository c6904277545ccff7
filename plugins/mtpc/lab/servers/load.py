"""Completes prompts at a fixed concurrency and times what comes back: over HTTP, or inside an offline engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import aiohttp

from mtpc.errors import MTPCError, first_line
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.text.prompts import Prompt

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, without what is before the point, are spread evenly
TIMEOUT = aiohttp.ClientTimeout(total=1800)


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


def events(line: bytes) -> dict[str, Any] | None:
    """The JSON of one line of a server-sent event stream; None for the others and the end marker."""
    content = line.strip()
    if not content.startswith(b"data:"):
        return None
    content = content.removeprefix(b"data:").strip()
    return None if content == b"[DONE]" else dict(json.loads(content))


async def complete(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], counts: CountsInAnswers | None = None
) -> Completion:
    """Stream one completion of a request's JSON.

    Errors: `MTPCError` when the server refuses the request or reports an error on the way.
    """
    started = time.perf_counter()
    first, last, tokens, pieces, drafts = 0.0, 0.0, 0, [], NO_DRAFTS
    async with session.post(f"{url}/v1/completions", json=body | (counts.ask if counts else {})) as reply:
        if reply.status != 200:
            raise MTPCError(f"{url} refused a request with status {reply.status}: {(await reply.text())[:300]}")
        async for line in reply.content:
            event = events(line)
            if event is None:
                continue
            if "error" in event:
                raise MTPCError(f"{url} broke off a completion: {event['error']}")
            if event.get("choices"):
                last = time.perf_counter() - started
                first = first or last
                pieces.append(event["choices"][0]["text"])
            if event.get("usage"):
                tokens = int(event["usage"]["completion_tokens"])
            if counts is not None:
                drafts = counts.read(event) or drafts
    if not tokens:
        raise MTPCError(f"{url} did not report how many tokens it completed.")
    return Completion(body["prompt"], "".join(pieces), tokens, first, last, drafts)


async def answers_of(
    asked: Sequence[Asked], ask: Callable[[Asked], Awaitable[Answer]], concurrency: int
) -> list[Answer]:
    """Answers in the order of what is asked, so many at a time: whenever one comes, the next one is asked for."""
    waiting = iter(enumerate(asked))
    answers: dict[int, Answer] = {}

    async def work() -> None:
        for index, one in waiting:
            answers[index] = await ask(one)

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return [answers[index] for index in range(len(asked))]


async def _run(url: str, bodies: Sequence[dict[str, Any]], concurrency: int, counts: CountsInAnswers | None) -> Load:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=TIMEOUT, connector=connector) as session:
        started = time.perf_counter()
        completions = await answers_of(bodies, lambda body: complete(session, url, body, counts), concurrency)
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

    Errors: `MTPCError` when the server cannot be reached, refuses a request or answers something else.
    """
    limits = sampling.limits(len(prompts))
    bodies = [sampling.body(model, prompt) | {"max_tokens": most} for prompt, most in zip(prompts, limits, strict=True)]
    try:
        return asyncio.run(_run(url, bodies, concurrency, counts))
    except MTPCError:
        raise
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
        raise MTPCError(f"{url} broke off a completion: {first_line(error)}.") from None


async def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session, session.post(url, json=body) as reply:
        if reply.status != 200:
            raise MTPCError(f"the offline engine failed: {(await reply.text())[:300]}")
        return dict(await reply.json(content_type=None))


def run_offline(url: str, model: str, prompts: Sequence[Prompt], sampling: Sampling, concurrency: int) -> Load:
    """The same in an offline engine: its process gets all prompts at once and keeps time itself.

    Errors: `MTPCError` when the process cannot be reached or the engine fails.
    """
    asked = {"prompts": list(prompts), "limits": sampling.limits(len(prompts)), "concurrency": concurrency}
    body = asked | sampling.body(model, "")
    try:
        reply = asyncio.run(_post(f"{url}/run", body))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise MTPCError(f"{url} broke off a run: {error or type(error).__name__}.") from None
    answers = zip(prompts, reply["completions"], strict=True)
    return Load(tuple(Completion(prompt, **answer) for prompt, answer in answers), reply["seconds"])
