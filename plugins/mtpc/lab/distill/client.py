"""Completions of token ids over an engine's OpenAI-compatible endpoint, many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import aiohttp
from pydantic import BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared_json

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


class Choice(BaseModel):
    """A completion in an answer, as far as it is read."""

    text: str
    token_ids: list[int] | None = None
    finish_reason: str


class Answer(BaseModel):
    """An answer."""

    choices: Annotated[list[Choice], Field(min_length=1)]


async def complete(
    session: aiohttp.ClientSession, url: str, model: str, prompt: list[int], end: int, sampling: Sampling, seed: int
) -> Completion:
    """One completion, ended by the token ``end`` or the limit.

    Errors: `MTPCError` when the server refuses it or answers something else; aiohttp's when it cannot be reached.
    """
    body = {"model": model, "prompt": prompt, "seed": seed, "stop_token_ids": [end], "return_token_ids": True}
    async with session.post(f"{url}/v1/completions", json={**body, **sampling.body()}) as reply:
        if reply.status != 200:
            raise MTPCError(f"{url} refused a completion ({reply.status}): {(await reply.text())[:300]}")
        expected = f"{url} answered something else than a completion"
        choice = declared_json(Answer, await reply.read(), expected).choices[0]
    return Completion(choice.text, tuple(choice.token_ids or ()), choice.finish_reason)
