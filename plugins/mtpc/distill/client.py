"""Completions of token ids over an engine's OpenAI-compatible endpoint, many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp

from mtpc.errors import MTPCError

TIMEOUT = aiohttp.ClientTimeout(total=3600)


@dataclass(frozen=True)
class Sampling:
    """How text is sampled; the answers' defaults are the paper's (appendix A)."""

    max_tokens: int
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20  # 0: all

    def body(self) -> dict[str, Any]:
        """Its part of a request."""
        body = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        return {**body, "top_k": self.top_k} if self.top_k else body


@dataclass(frozen=True)
class Completion:
    """What came back; ids are empty where the engine does not return them."""

    text: str
    ids: tuple[int, ...]
    finish: str


async def complete(
    session: aiohttp.ClientSession, url: str, model: str, prompt: list[int], end: int, sampling: Sampling, seed: int
) -> Completion:
    """One completion, ended by the token ``end`` or the limit.

    Errors: `MTPCError` when the server refuses it; aiohttp's when it cannot be reached.
    """
    body = {"model": model, "prompt": prompt, "seed": seed, "stop_token_ids": [end], "return_token_ids": True}
    async with session.post(f"{url}/v1/completions", json={**body, **sampling.body()}) as reply:
        if reply.status != 200:
            raise MTPCError(f"{url} refused a completion ({reply.status}): {(await reply.text())[:300]}")
        choice = (await reply.json(content_type=None))["choices"][0]
    return Completion(choice["text"], tuple(choice.get("token_ids") or ()), choice["finish_reason"])
