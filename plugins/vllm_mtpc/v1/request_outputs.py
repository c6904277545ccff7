"""Follows the outputs of requests on vLLM's V1 runner, which does not call its proposer in every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RequestOutputs:
    """The output tokens of each request that have not been read yet.

    vLLM leaves out steps in which a request is close to the maximum length.  The tokens that other requests emitted
    then stand in vLLM's state of these requests.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[Any, int]] = {}  # vLLM's state of each request, and how many tokens were read

    def gone(self, requests: Mapping[str, Any]) -> dict[str, list[int]]:
        """Forget the requests that are finished, and those from which vLLM has taken tokens back.

        Args:
            requests: All unfinished requests of vLLM by id; an id may be used again.

        Returns:
            The tokens of each that were not read, by id.
        """
        gone: dict[str, list[int]] = {}
        for name, (request, read) in self._read.items():
            output = request.output_token_ids
            if requests.get(name) is not request or len(output) < read:
                gone[name] = output[read:]
        for name in gone:
            del self._read[name]
        return gone

    def follow(self, name: str, request: Any) -> None:
        """Follow a request from the begin of its output, unless it is followed.

        Args:
            name: Its id.
            request: vLLM's state of it.
        """
        self._read.setdefault(name, (request, 0))

    def missed(self, name: str, request: Any, emitted: int) -> list[int]:
        """Return the tokens of a request that were not read, and count those that follow them as read.

        Args:
            name: Its id.
            request: vLLM's state of it, without the tokens of this step.
            emitted: Number of tokens that it emitted in this step.
        """
        _, read = self._read.get(name, (request, 0))
        missed: list[int] = request.output_token_ids[read:]
        self._read[name] = request, read + len(missed) + emitted
        return missed
