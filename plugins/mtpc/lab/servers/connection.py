"""Requests to a running server over HTTP, for every command that sends some."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from openai import DEFAULT_CONNECTION_LIMITS, APIStatusError, AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient

from mtpc.errors import MTPCError, first_line

Item = TypeVar("Item")
Response = TypeVar("Response")
COMPLETIONS = "/v1/completions"
READ_TIMEOUT = 3600.0  # seconds without a byte of a response
UNLIMITED = type(DEFAULT_CONNECTION_LIMITS)(max_connections=None)  # a request that waits here would be timed too long


class Connection:
    """An HTTP connection to a server, as an asynchronous context manager.

    Requests are sent inside of the context; leaving it closes the connection.  Bodies and responses stay plain JSON:
    objects of `openai` would take ten times as long for each token.

    Args:
        url: Address of the server, without a route.
        retries: Number of repetitions, with growing pauses, of a request that breaks off before its response or gets
            the status of an overloaded or failing server (408, 409, 429, 5xx).
    """

    def __init__(self, url: str, retries: int = 0) -> None:
        self.url = url.rstrip("/")
        http = DefaultAsyncHttpxClient(trust_env=False, limits=UNLIMITED, timeout=READ_TIMEOUT)
        self._openai = AsyncOpenAI(api_key="none", base_url=self.url, max_retries=retries, http_client=http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._openai.close()

    async def post(self, route: str, body: dict[str, Any]) -> bytes:
        """Return the whole response to a request.

        Args:
            route: Path of the route, which begins with a slash.
            body: The request's JSON.

        Raises:
            MTPCError: The server cannot be reached, refuses the request or breaks off.
        """
        with _sentences(self.url):
            return await self._openai.post(route, cast_to=bytes, body=body)

    async def events(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Stream a completion.

        Args:
            body: The request's JSON, with ``"stream": true``.

        Yields:
            Each event's JSON, as it arrives.

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
    """Turn exceptions of `openai`, and of the HTTP package below it, into an `MTPCError`."""
    try:
        yield
    except APIStatusError as error:
        answer = error.response.text[:300]
        raise MTPCError(f"{url} answered a request with status {error.status_code}: {answer}") from None
    except Exception as error:
        raise MTPCError(f"{url} broke off a request: {first_line(error.__cause__ or error)}.") from None


def run_requests(requests: Coroutine[Any, Any, Response]) -> Response:
    """Run a coroutine that sends requests, as `asyncio.run`.

    An exit in one of its tasks, as `exit_on_signals` raises it, ends all without a message.

    Args:
        requests: The coroutine.

    Returns:
        Its result.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SystemExit):
            loop.default_exception_handler(context)

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(handle)
        return runner.run(requests)


async def run_concurrently(
    items: Sequence[Item], request: Callable[[Item], Awaitable[Response]], concurrency: int
) -> list[Response]:
    """Send requests at a fixed concurrency: whenever one ends, the next one is sent.

    Args:
        items: What to request.
        request: Sends the request for one item and returns its response.
        concurrency: Number of requests in flight.

    Returns:
        The responses, in the order of the items.
    """
    waiting = iter(enumerate(items))
    responses: dict[int, Response] = {}

    async def work() -> None:
        for index, item in waiting:
            responses[index] = await request(item)

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return [responses[index] for index in range(len(items))]
