"""A completion of token ids, by their ids and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.files.config_model import declared_json
from mtpc.lab.servers.connection import COMPLETIONS, Connection


@dataclass(frozen=True)
class SamplingOptions:
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
class SampledCompletion:
    """What came back; ids are empty where the engine does not return them."""

    text: str
    ids: tuple[int, ...]
    finish: str


class CompletionChoice(BaseModel):
    """A completion in an answer, as far as it is read."""

    text: str
    token_ids: list[int] | None = None
    finish_reason: str


class CompletionResponse(BaseModel):
    """An answer."""

    choices: Annotated[list[CompletionChoice], Field(min_length=1)]


async def complete(
    connection: Connection, model: str, prompt: list[int], end: int, sampling: SamplingOptions, seed: int
) -> SampledCompletion:
    """One completion, ended by the token ``end`` or the limit.

    Errors: `MTPCError` when the server cannot be reached, refuses it or answers something else.
    """
    body = {"model": model, "prompt": prompt, "seed": seed, "stop_token_ids": [end], "return_token_ids": True}
    content = await connection.post(COMPLETIONS, {**body, **sampling.body()})
    choice = declared_json(
        CompletionResponse, content, f"{connection.url} answered something else than a completion"
    ).choices[0]
    return SampledCompletion(choice.text, tuple(choice.token_ids or ()), choice.finish_reason)
