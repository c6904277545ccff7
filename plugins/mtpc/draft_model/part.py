"""The contract of a text part, between the adapters and the draft models behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from mtpc.verify.strings import DraftProbs


class LazyProbs(DraftProbs, Protocol):
    """The distributions of a batch's drafts, where they are not computed over the whole vocabulary.

    They are valid until the part drafts again. After the end of a draft, token 0 is certain. ``of`` takes tensors of
    any device, and returns one of the host.

    Attributes:
        stated: float64 [B, W], q of each draft token; 1 after the end of a draft.
    """

    stated: Tensor


class LazyDraft(NamedTuple):
    """Draft tokens of a batch, filled up to one length with token 0.

    Attributes:
        tokens: int64 [B, K].
        probs: The distributions that they were drawn from.
    """

    tokens: Tensor
    probs: LazyProbs


class TextDraft(NamedTuple):
    """Draft tokens of a batch, of different lengths, and the distributions that they were drawn from.

    Attributes:
        tokens: B lists of tokens of the target, each of at most the length that was asked for; a list may be empty.
        probs: float32 [B, W, V], the exact conditionals q(x_i | x_<i), where W is the length of the longest list; rows
            after the end of a shorter one are one-hot. None where all requests are greedy, or ``lazy`` is given. For a
            greedy request of a mixed batch, any distributions that give its draft tokens a positive probability.
        lazy: The same distributions, for `mtpc.verify.verify_strings`; only where `TextPart.verifies_lazily`.
    """

    tokens: list[list[int]]
    probs: Tensor | None
    lazy: LazyProbs | None = None


class TextPart(ABC):
    """Drafts from the tokens of requests, on the host, without the target's hidden states.

    It keeps state for each request, under a key that the engine chooses. Protocol of a decoding step: `add` for each
    request of the batch, then `draft` for all of them; `forget` when requests are over. The text of a request only
    grows. A request may be left out of any number of steps, as one that is preempted.

    Attributes:
        vocab_size: V of the target.
        verifies_lazily: Whether drafts are verified by `TextDraft.lazy` where it is given. An adapter that does so sets
            it before the first draft.
    """

    vocab_size: int
    verifies_lazily = False

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
        self, keys: Sequence[Hashable], temperatures: Sequence[float], lengths: Sequence[int], noise: Tensor | None
    ) -> TextDraft:
        """Draft the tokens that follow each request's text.

        No decision about a position depends on the token drawn there or later.

        Args:
            keys: B requests.
            temperatures: Their temperatures; 0 is greedy.
            lengths: Most draft tokens of each; 0: none.
            noise: float64 [B, K] on the host, uniforms in [0, 1), one per draft token, where K is no less than the
                largest of ``lengths``. May be None where every temperature is 0.

        Returns:
            The draft tokens, with ``probs`` unless every temperature is 0. Those of a request at 0 are certain: its
            ``probs`` are one-hot.
        """

    @abstractmethod
    def forget(self, keys: Iterable[Hashable]) -> None:
        """Free the state of requests that are over; unknown ones are ignored."""

    @abstractmethod
    def dummy_draft(self, requests: int, num_drafts: int) -> None:
        """Do the work of drafting K tokens for some requests of no text, so that it can be timed at start-up.

        Args:
            requests: Number of requests.
            num_drafts: K.
        """

    @abstractmethod
    def memory(self) -> int:
        """Return the bytes of weights and caches that it keeps."""
