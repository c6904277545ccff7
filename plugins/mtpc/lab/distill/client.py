"""Completion requests with token ids, as both engines serve them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field

from mtpc.files.config_model import validated_json
from mtpc.lab.distill.settings import SamplingOptions
from mtpc.lab.servers.connection import COMPLETIONS, Connection


@dataclass(frozen=True)
class SampledCompletion:
    """Completion of one prompt.

    Attributes:
        text: Generated text.
        ids: Generated token ids.
        finish: Finish reason, such as "stop" or "length".
    """

    text: str
    ids: tuple[int, ...]
    finish: str


class CompletionChoice(BaseModel):
    """Fields that are read of one choice in a response."""

    text: str
    token_ids: list[int]
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
    return SampledCompletion(choice.text, tuple(choice.token_ids), choice.finish_reason)
