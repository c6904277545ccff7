"""Completes prompts at a fixed concurrency and measures latency: over HTTP, or inside an offline engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.servers.connection import Connection, run_concurrently, run_requests
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.text.prompts import Prompt

GOLDEN = (5**0.5 - 1) / 2  # the fractional parts of its multiples are spread evenly


class ResponseCounters(NamedTuple):
    """How to get the counts of draft tokens from the responses of an engine.

    Attributes:
        fields: Fields of every request that ask for the counts.
        read: Returns the counts in an event of the stream, or None.
    """

    fields: dict[str, Any]
    read: Callable[[dict[str, Any]], DraftCounters | None]


@dataclass(frozen=True)
class TimedCompletion:
    """A completed request; times are in seconds since it was sent.

    Attributes:
        prompt: The prompt.
        text: The completion.
        tokens: Number of tokens of the completion.
        first: Time to the first token (TTFT).
        seconds: Time to the last token.
        drafts: Counts of draft tokens; none where the engine's responses do not carry them.
        steps: Target forward passes of the completion; 0 where they are not known.
    """

    prompt: Prompt
    text: str
    tokens: int
    first: float
    seconds: float
    drafts: DraftCounters = NO_DRAFTS
    steps: int = 0

    @property
    def per_token(self) -> float:
        """Seconds per output token after the first (TPOT)."""
        return (self.seconds - self.first) / max(1, self.tokens - 1)


@dataclass(frozen=True)
class Load:
    """A finished run of requests.

    Attributes:
        completions: The completions, in the order of the prompts.
        seconds: Wall time of the whole run.
    """

    completions: tuple[TimedCompletion, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Number of generated tokens."""
        return sum(completion.tokens for completion in self.completions)

    @property
    def drafts(self) -> DraftCounters:
        """Counts of draft tokens; none where the engine's responses do not carry them."""
        return reduce(add, (completion.drafts for completion in self.completions))

    @property
    def in_flight(self) -> float:
        """Mean number of concurrent requests."""
        return sum(completion.seconds for completion in self.completions) / self.seconds


@dataclass(frozen=True)
class CompletionParams:
    """Parameters of the completion requests of a run.

    Attributes:
        max_tokens: Largest number of tokens of a completion.
        temperature: Sampling temperature; 0 is greedy.
        ignore_eos: Whether completions continue after an end token, so that all have the same length.
        spread: Whether the limits vary from half of ``max_tokens`` to all of it, alike in every run.  Requests that
            begin together then end one by one, as they do in practice.
    """

    max_tokens: int
    temperature: float
    ignore_eos: bool = True
    spread: bool = False

    def limits(self, count: int) -> list[int]:
        """Return the token limit of each of ``count`` completions; with ``spread``, neighbors are spread evenly."""
        shares = [(1.0 + number * GOLDEN % 1.0) / 2 if self.spread else 1.0 for number in range(1, count + 1)]
        return [round(self.max_tokens * share) for share in shares]

    def body(self, model: str, prompt: Prompt) -> dict[str, Any]:
        """Return the JSON of a streaming request to ``/v1/completions``."""
        return {
            "model": model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def complete(
    connection: Connection, body: dict[str, Any], counts: ResponseCounters | None = None
) -> TimedCompletion:
    """Stream one completion and time it.

    Args:
        connection: Connection to the server.
        body: The request's JSON.
        counts: How to get counts of draft tokens from the responses; None where they do not carry them.

    Returns:
        The completion.

    Raises:
        MTPCError: The server refuses the request, reports an error, or does not report the number of tokens.
    """
    started = time.perf_counter()
    first, last, tokens, pieces, drafts = 0.0, 0.0, 0, [], NO_DRAFTS
    async for event in connection.events(body | (counts.fields if counts else {})):
        if event.get("choices"):
            last = time.perf_counter() - started
            first = first or last
            pieces.append(event["choices"][0]["text"])
        if event.get("usage"):
            tokens = int(event["usage"]["completion_tokens"])
        if counts is not None:
            drafts = counts.read(event) or drafts
    if not tokens:
        raise MTPCError(
            f"{connection.url} did not report the number of generated tokens, which stream_options.include_usage "
            "requests: it must be a vLLM or SGLang server."
        )
    return TimedCompletion(body["prompt"], "".join(pieces), tokens, first, last, drafts)


async def _run(url: str, bodies: Sequence[dict[str, Any]], concurrency: int, counts: ResponseCounters | None) -> Load:
    async with Connection(url) as connection:
        started = time.perf_counter()
        completions = await run_concurrently(bodies, lambda body: complete(connection, body, counts), concurrency)
        seconds = time.perf_counter() - started
    return Load(tuple(completions), seconds)


def run_load(
    url: str,
    model: str,
    prompts: Sequence[Prompt],
    sampling: CompletionParams,
    concurrency: int,
    counts: ResponseCounters | None = None,
) -> Load:
    """Complete every prompt over HTTP at a fixed concurrency.

    Args:
        url: Address of the server.
        model: Name of the served model.
        prompts: Prompts, as text or token ids.
        sampling: Parameters of the requests.
        concurrency: Number of requests in flight; whenever one ends, the next one is sent.
        counts: How to get counts of draft tokens from the responses; None where they do not carry them.

    Returns:
        The completions and the wall time.

    Raises:
        MTPCError: The server cannot be reached, refuses a request or breaks off.
    """
    limits = sampling.limits(len(prompts))
    bodies = [sampling.body(model, prompt) | {"max_tokens": most} for prompt, most in zip(prompts, limits, strict=True)]
    return run_requests(_run(url, bodies, concurrency, counts))


async def _post_run(url: str, body: dict[str, Any]) -> bytes:
    async with Connection(url) as connection:
        return await connection.post("/run", body)


def run_offline(url: str, model: str, prompts: Sequence[Prompt], sampling: CompletionParams, concurrency: int) -> Load:
    """Complete every prompt in an offline engine, which gets all prompts at once and measures the times itself.

    Args:
        url: Address of the engine's process (`vllm_mtpc.offline`).
        model: Name of the served model.
        prompts: Prompts, as text or token ids.
        sampling: Parameters of the completions.
        concurrency: Number of prompts that are completed at the same time.

    Returns:
        The completions and the wall time.

    Raises:
        MTPCError: The process cannot be reached, or the engine fails.
    """
    run = {"prompts": list(prompts), "limits": sampling.limits(len(prompts)), "concurrency": concurrency}
    reply = json.loads(run_requests(_post_run(url, run | sampling.body(model, ""))))
    completions = zip(prompts, reply["completions"], strict=True)
    return Load(tuple(TimedCompletion(prompt, **fields) for prompt, fields in completions), reply["seconds"])
