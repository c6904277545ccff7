"""Requests completions and log-probabilities from a server, concurrently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from pydantic import BaseModel

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json
from mtpc.lab.prove.engine_api import SGLANG, VLLM, CompletionRequest, Post, TokenIds, TopLogprobs
from mtpc.lab.servers.connection import Connection, run_concurrently, run_requests
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.server import Server, base_url, fetch
from mtpc.lab.servers.sglang_engine import INFORMATION
from mtpc.lab.servers.vllm_engine import vllm_counters
from mtpc.lab.text.prompts import Prompt


class TokenizeResponse(BaseModel):
    """The response of ``/tokenize``."""

    tokens: list[int]


class Completions(NamedTuple):
    """The responses to several requests.

    Attributes:
        texts: The completions of each request, in the order of the requests.
        drafts: Counts of draft tokens in the responses.
    """

    texts: list[list[TokenIds]]
    drafts: DraftCounters


def _ignore() -> None:
    """Do nothing."""


class Client:
    """A client of a running server, which detects whether it is vLLM or SGLang.

    Methods that send requests raise `MTPCError` where the server refuses one, breaks off, or its response has another
    form.

    Args:
        url: Address of the server.
        concurrency: Number of requests in flight.
        on_response: Called after each response.
    """

    def __init__(self, url: str, concurrency: int, on_response: Callable[[], None] = _ignore) -> None:
        self.url, self.concurrency, self.on_response = base_url(url), concurrency, on_response
        self.model = Server(self.url, []).model()
        self.api = SGLANG if _responds(f"{self.url}{INFORMATION}") else VLLM
        self.unexpected = f"the response of {self.url} is not one of {self.api.name} with token ids"

    def complete(self, requests: Sequence[CompletionRequest], concurrency: int | None = None) -> Completions:
        """Complete all requests.

        Args:
            requests: The requests.
            concurrency: Number of requests in flight; None for the client's.

        Returns:
            The completions.

        Raises:
            MTPCError: A completion has another number of tokens than requested; see also the class.
        """
        posts = [self.api.completion_request(self.model, request) for request in requests]
        found = [self.api.read_completions(content, self.unexpected) for content in self._post(posts, concurrency)]
        for request, (texts, _) in zip(requests, found, strict=True):
            if [len(text) for text in texts] != [request.tokens] * request.times:
                raise MTPCError(f"{self.url} completed a prompt with fewer or more than {request.tokens} tokens.")
        return Completions([texts for texts, _ in found], reduce(add, (drafts for _, drafts in found), NO_DRAFTS))

    def top_logprobs(self, texts: Sequence[TokenIds], start: int) -> list[list[TopLogprobs]]:
        """Return the most probable tokens at each position of given texts.

        Args:
            texts: The texts.
            start: First position.

        Returns:
            For each text, the log-probabilities at the positions from the first one on.

        Raises:
            MTPCError: The server does not return log-probabilities of a prompt; see also the class.
        """
        posts = [self.api.logprobs_request(self.model, text, start) for text in texts]
        found = [self.api.read_logprobs(content, self.unexpected, start) for content in self._post(posts)]
        for text, positions in zip(texts, found, strict=True):
            if len(positions) != len(text) - start or not all(each.ids for each in positions):
                raise MTPCError(f"{self.url} does not return the log-probabilities of a prompt's tokens.")
        return found

    def next_top_logprobs(self, texts: Sequence[TokenIds]) -> list[TopLogprobs]:
        """Return the most probable next tokens after each of several texts of equal length."""
        start = len(texts[0])
        return [positions[0] for positions in self.top_logprobs([(*text, text[-1]) for text in texts], start)]

    def tokens(self, prompt: Prompt) -> TokenIds:
        """Return a prompt as token ids."""
        if not isinstance(prompt, str):
            return tuple(prompt)
        (content,) = self._post([("/tokenize", {"model": self.model, "prompt": prompt})])
        return tuple(validated_json(TokenizeResponse, content, self.unexpected).tokens)

    def counters(self) -> DraftCounters:
        """Return the counts of its page of metrics; zeros where there is none."""
        try:
            return vllm_counters(parse(fetch(f"{self.url}/metrics")))
        except MTPCError:
            return NO_DRAFTS

    def _post(self, posts: Sequence[Post], concurrency: int | None = None) -> list[bytes]:
        return run_requests(self._post_all(posts, concurrency or self.concurrency))

    async def _post_all(self, posts: Sequence[Post], concurrency: int) -> list[bytes]:
        async with Connection(self.url) as connection:

            async def send(post: Post) -> bytes:
                response = await connection.post(*post)
                self.on_response()
                return response

            return await run_concurrently(posts, send, concurrency)


def _responds(url: str) -> bool:
    try:
        fetch(url)
    except MTPCError:
        return False
    return True
