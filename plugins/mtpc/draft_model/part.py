"""The contract of a text part, between the adapters and the draft models behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from torch import Tensor


class TextDraft(NamedTuple):
    """Draft tokens of a batch, of different lengths, and the distributions that they were drawn from.

    Attributes:
        tokens: B lists of at most K tokens of the target; a list may be empty.
        probs: float32 [B, W, V], the exact conditionals q(x_i | x_<i), where W is the length of the longest list; rows
            after the end of a shorter one are one-hot. None where all requests are greedy. For a greedy request of a
            mixed batch, any distributions that give its draft tokens a positive probability.
    """

    tokens: list[list[int]]
    probs: Tensor | None


class TextPart(ABC):
    """Drafts from the tokens of requests, on the host, without the target's hidden states.

    It keeps state for each request, under a key that the engine chooses. Protocol of a decoding step: `add` for each
    request of the batch, then `draft` for all of them; `forget` when requests are over. The text of a request only
    grows. A request may be left out of any number of steps, as one that is preempted.

    Attributes:
        vocab_size: V of the target.
    """

    vocab_size: int

    @abstractmethod
    def add(self, key: Hashable, text: Callable[[], Sequence[int]], emitted: Sequence[int]) -> None:
        """Add the tokens that the target has emitted since the last call for a request.

        Args:
            key: The request.
            text: Returns all tokens of the request, of its prompt and its output, ``emitted`` included; it is called
                when the request is new.
            emitted: The new tokens of its output.
        """

    @abstractmethod
    def draft(
        self, keys: Sequence[Hashable], temperatures: Sequence[float], num_drafts: int, noise: Tensor | None
    ) -> TextDraft:
        """Draft the tokens that follow each request's text.

        No decision about a position depends on the token drawn there or later.

        Args:
            keys: B requests.
            temperatures: Their temperatures; 0 is greedy.
            num_drafts: K, at least 1.
            noise: float64 [B, K] on the host, uniforms in [0, 1), one per draft token. May be None where every
                temperature is 0.

        Returns:
            The draft tokens, with ``probs`` unless every temperature is 0.
        """

    @abstractmethod
    def forget(self, keys: Iterable[Hashable]) -> None:
        """Free the state of requests that are over; unknown ones are ignored."""

    @abstractmethod
    def memory(self) -> int:
        """Return the bytes of weights and caches that it keeps."""
