"""Completion requests with token ids, as both engines serve them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.files.config_model import validated_json
from mtpc.lab.servers.connection import COMPLETIONS, Connection


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling parameters. The defaults are those of the FastMTP paper's answers (appendix A).

    Attributes:
        max_tokens: Longest output, in tokens.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Probability mass of nucleus sampling; 1 is off.
        top_k: Number of candidates; 0 is off.
    """

    max_tokens: int
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20

    def body(self) -> dict[str, Any]:
        """Return the sampling fields of a completion request."""
        body = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        return {**body, "top_k": self.top_k} if self.top_k else body


@dataclass(frozen=True)
class SampledCompletion:
    """Completion of one prompt.

    Attributes:
        text: Generated text.
        ids: Generated token ids. Empty if the engine does not return them.
        finish: Finish reason, such as "stop" or "length".
    """

    text: str
    ids: tuple[int, ...]
    finish: str


class CompletionChoice(BaseModel):
    """Fields that are read of one choice in a response."""

    text: str
    token_ids: list[int] | None = None
    finish_reason: str


class CompletionResponse(BaseModel):
    """Fields that are read of a response."""

    choices: Annotated[list[CompletionChoice], Field(min_length=1)]


async def complete(
    connection: Connection, model: str, prompt: list[int], end: int, sampling: SamplingOptions, seed: int
) -> SampledCompletion:
    """Request one completion.

    Args:
        connection: Open connection to the server.
        model: Name of the served model.
        prompt: Token ids of the prompt.
        end: Token that ends the completion.
        sampling: Sampling parameters.
        seed: Seed of the sampling.

    Returns:
        The completion.

    Raises:
        MTPCError: The server cannot be reached, rejects the request, or returns something else.
    """
    body = {"model": model, "prompt": prompt, "seed": seed, "stop_token_ids": [end], "return_token_ids": True}
    content = await connection.post(COMPLETIONS, {**body, **sampling.body()})
    response = validated_json(CompletionResponse, content, f"{connection.url} did not return a completion")
    choice = response.choices[0]
    return SampledCompletion(choice.text, tuple(choice.token_ids or ()), choice.finish_reason)
