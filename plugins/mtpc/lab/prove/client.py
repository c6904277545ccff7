"""Asks a server for completions and for what it states of texts, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from pydantic import BaseModel

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared_json
from mtpc.lab.prove.dialects import SGLANG, VLLM, Posted, Request, Stated, Text
from mtpc.lab.servers.connection import Connection, run_concurrently
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.server import Server, fetch
from mtpc.lab.servers.vllm_engine import vllm_counters
from mtpc.lab.text.prompts import Prompt


class Tokens(BaseModel):
    """What a server makes of a text."""

    tokens: list[int]


class Answers(NamedTuple):
    """The completions of each request, in the order of the requests, and what the answers say of their drafts."""

    texts: list[list[Text]]
    drafts: DraftCounters


def _nothing() -> None:
    """Nobody is told."""


class Client:
    """A running server of vLLM or SGLang; ``told`` is called for each answer."""

    def __init__(self, url: str, concurrency: int, told: Callable[[], None] = _nothing) -> None:
        self.url, self.concurrency, self.told = url.rstrip("/"), concurrency, told
        self.model = Server(self.url, []).model()
        self.dialect = SGLANG if _answers(f"{self.url}/get_server_info") else VLLM
        self.strange = f"{self.url} answered something else than {self.dialect.name} does, with the ids of tokens"

    def ask(self, requests: Sequence[Request], together: int | None = None) -> Answers:
        """Complete all requests, so many at a time.

        Errors: `MTPCError` where the server refuses one, breaks off or answers something else; so in what follows.
        """
        posted = [self.dialect.complete(self.model, request) for request in requests]
        found = [self.dialect.completed(content, self.strange) for content in self._post(posted, together)]
        for request, (texts, _) in zip(requests, found, strict=True):
            if [len(text) for text in texts] != [request.tokens] * request.times:
                raise MTPCError(f"{self.url} completed a prompt with fewer or more tokens than it was asked for.")
        return Answers([texts for texts, _ in found], reduce(add, (drafts for _, drafts in found), NO_DRAFTS))

    def stated(self, texts: Sequence[Text], start: int) -> list[list[Stated]]:
        """What the server states of each token of these texts from a place on."""
        posted = [self.dialect.state(self.model, text, start) for text in texts]
        found = [self.dialect.stated(content, self.strange, start) for content in self._post(posted)]
        for text, places in zip(texts, found, strict=True):
            if len(places) != len(text) - start or not all(place.ids for place in places):
                raise MTPCError(f"{self.url} does not state how probable the tokens of a prompt are.")
        return found

    def next_tokens(self, texts: Sequence[Text]) -> list[Stated]:
        """What it states of the token after each of these texts, all equally long."""
        start = len(texts[0])
        return [places[0] for places in self.stated([(*text, text[-1]) for text in texts], start)]

    def tokens(self, prompt: Prompt) -> Text:
        """A prompt as ids."""
        if not isinstance(prompt, str):
            return tuple(prompt)
        (content,) = self._post([("/tokenize", {"model": self.model, "prompt": prompt})])
        return tuple(declared_json(Tokens, content, self.strange).tokens)

    def counters(self) -> DraftCounters:
        """What its page of metrics counts; nothing where there is none."""
        try:
            return vllm_counters(parse(fetch(f"{self.url}/metrics")))
        except MTPCError:
            return NO_DRAFTS

    def _post(self, posted: Sequence[Posted], together: int | None = None) -> list[bytes]:
        return asyncio.run(self._post_all(posted, together or self.concurrency))

    async def _post_all(self, posted: Sequence[Posted], together: int) -> list[bytes]:
        async with Connection(self.url) as connection:

            async def ask(one: Posted) -> bytes:
                answer = await connection.post(*one)
                self.told()
                return answer

            return await run_concurrently(posted, ask, together)


def _answers(url: str) -> bool:
    try:
        fetch(url)
    except MTPCError:
        return False
    return True
