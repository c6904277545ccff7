"""Requests to a running server over HTTP, for every command that asks one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from openai import DEFAULT_CONNECTION_LIMITS, APIStatusError, AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient

from mtpc.errors import MTPCError, first_line

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
COMPLETIONS = "/v1/completions"
SECONDS = 3600.0  # without a byte of an answer
UNLIMITED = type(DEFAULT_CONNECTION_LIMITS)(max_connections=None)  # else a request waits here, and its time with it


class Connection:
    """A server's address, to which requests are sent; an asynchronous context.

    Bodies and answers stay plain JSON: objects of `openai` would take ten times as long for each token.

    Args:
        url: Address of the server, without a route.
        retries: How often a request is sent again, with growing pauses, that breaks off before its answer or whose
            answer is one of an overloaded or failing server (status 408, 409, 429, 5xx).
    """

    def __init__(self, url: str, retries: int = 0) -> None:
        self.url = url.rstrip("/")
        http = DefaultAsyncHttpxClient(trust_env=False, limits=UNLIMITED, timeout=SECONDS)
        self._openai = AsyncOpenAI(api_key="none", base_url=self.url, max_retries=retries, http_client=http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._openai.close()

    async def post(self, route: str, body: dict[str, Any]) -> bytes:
        """Return the whole answer to a request.

        Raises:
            MTPCError: The server cannot be reached, refuses the request or breaks off.
        """
        with _sentences(self.url):
            return await self._openai.post(route, cast_to=bytes, body=body)

    async def events(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a completion that is streamed, as they come.

        Raises:
            MTPCError: As `post`, and where an event reports an error.
        """
        with _sentences(self.url):
            request = self._openai.post(
                COMPLETIONS, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[Any]
            )
            async with await request as stream:
                async for event in stream:
                    yield event


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Around what `openai` does alone; its version 2 passes on the errors of the package that it sends with."""
    try:
        yield
    except APIStatusError as error:
        answer = error.response.text[:300]
        raise MTPCError(f"{url} answered a request with status {error.status_code}: {answer}") from None
    except Exception as error:
        raise MTPCError(f"{url} broke off a request: {first_line(error.__cause__ or error)}.") from None


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
