"""The target's embedding and output head as a drafter uses them: shared, never stored, whole or some rows only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def index_by_token(ids: Tensor, vocab_size: int) -> Tensor:
    """Return the index of every token in ``ids``, int64 [R]: int64 [V], -1 where it is missing."""
    found = ids.new_full((vocab_size,), -1)
    found[ids] = torch.arange(len(ids), device=ids.device)
    return found


class Head(ABC):
    """An output head that tokens are drafted through, over all tokens or over a draft vocabulary.

    Attributes:
        ids: Tokens of the logits, int64 [R]; None: all tokens in order.
        vocab_size: V of the target.
    """

    ids: Tensor | None
    vocab_size: int

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """Return logits of the draft vocabulary, float32 [..., R].

        Args:
            states: Hidden states, [..., d].
        """

    def of_rows(self, rows: slice) -> Head:
        """Return the head for a slice of the batch's requests."""
        return self

    @cached_property
    def index_by_token(self) -> Tensor | None:
        """Index of every token in ``ids``, int64 [V], -1 where it is missing; None: the head has all tokens."""
        return None if self.ids is None else index_by_token(self.ids, self.vocab_size)

    def tokens_of(self, rows: Tensor) -> Tensor:
        """Return the tokens of head rows: int64 [...] in 0..R - 1 -> int64 [...]."""
        return rows if self.ids is None else self.ids[rows]

    def spread(self, probabilities: Tensor, empty: float = 0.0) -> Tensor:
        """Expand values of the draft vocabulary to the whole vocabulary: [..., R] -> [..., V].

        Args:
            probabilities: Values of the tokens in ``ids``, [..., R].
            empty: Value of all other tokens.

        Returns:
            Values of all tokens, [..., V].
        """
        if self.ids is None:
            return probabilities
        whole = probabilities.new_full((*probabilities.shape[:-1], self.vocab_size), empty)
        return whole.index_copy(-1, self.ids, probabilities)


class SharedHead(Head):
    """The target's own embedding and output head; only the rows of a restricted vocabulary are copied.

    Args:
        embedding: Input embedding of every token, [V, d].
        rows: Output head rows of the draft vocabulary, [R, d].
        ids: Tokens of these rows, int64 [R]; None: all tokens in order.
    """

    def __init__(self, embedding: Tensor, rows: Tensor, ids: Tensor | None = None) -> None:
        self.embedding, self.rows, self.ids = embedding, rows, ids
        self.vocab_size = len(embedding)

    @classmethod
    def of(cls, model: Any) -> SharedHead:
        """Return the head of a causal language model of transformers."""
        return cls(model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach())

    def restricted(self, ids: Tensor) -> SharedHead:
        """Return the head restricted to some tokens (FastMTP, arXiv 2509.18362, section 2.2, equation 3).

        Args:
            ids: Tokens to keep, int64 [R].
        """
        ids = ids.to(self.rows.device)
        return SharedHead(self.embedding, self.rows[ids], ids)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return embeddings of tokens: int64 [...] -> [..., d]."""
        return torch.nn.functional.embedding(tokens, self.embedding)

    def logits(self, states: Tensor) -> Tensor:
        """Return logits of states [..., d], float32 [..., R]; see `Head.logits`.

        States are flattened first: torch would repeat the rows for each batch index of states that are not contiguous.
        """
        flat = states.to(self.rows.dtype).reshape(-1, states.shape[-1])
        return (flat @ self.rows.T).view(*states.shape[:-1], len(self.rows)).float()

    def rows_of(self, tokens: Tensor) -> Tensor:
        """Return the head rows of tokens: the inverse of `tokens_of`.

        Args:
            tokens: Tokens, all of the draft vocabulary, int64 [...]; ``ids`` must be ascending.
        """
        return tokens if self.ids is None else torch.searchsorted(self.ids, tokens.contiguous())
