"""The target's embedding and output head, as a drafter uses them: shared, never stored, whole or some rows only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def places(ids: Tensor, vocab_size: int) -> Tensor:
    """Where each token is among ids, int64 [R]: int64 [V], -1 where it is not."""
    found = ids.new_full((vocab_size,), -1)
    found[ids] = torch.arange(len(ids), device=ids.device)
    return found


class Head(ABC):
    """What tokens are drafted through: logits of all tokens, or of those of a draft vocabulary.

    ids: int64 [R], the tokens of the logits; None: all of them, in their order.  vocab_size: V.
    """

    ids: Tensor | None
    vocab_size: int

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """Of the draft vocabulary: states [..., d] -> float32 [..., R]."""

    def of_rows(self, rows: slice) -> Head:
        """The same for some rows of a batch alone."""
        return self

    @cached_property
    def places(self) -> Tensor | None:
        """Where each token is among the rows, int64 [V]; -1 where it is not.  None: the rows are all tokens."""
        return None if self.ids is None else places(self.ids, self.vocab_size)

    def tokens_of(self, rows: Tensor) -> Tensor:
        """The tokens of rows: int64 [...] in 0..R - 1 -> int64 [...]."""
        return rows if self.ids is None else self.ids[rows]

    def spread(self, probabilities: Tensor, empty: float = 0.0) -> Tensor:
        """Over the whole vocabulary: [..., R] -> [..., V], with ``empty`` where a token cannot be drafted."""
        if self.ids is None:
            return probabilities
        whole = probabilities.new_full((*probabilities.shape[:-1], self.vocab_size), empty)
        return whole.index_copy(-1, self.ids, probabilities)


class SharedHead(Head):
    """embedding: [V, d], every token's, as draft input.  rows: [R, d], the output head's rows of the draft vocabulary.

    ids: int64 [R], the tokens of these rows; None: all of them, in their order.  It holds the target's own tensors,
    but for the rows of a restricted vocabulary, which are gathered once.
    """

    def __init__(self, embedding: Tensor, rows: Tensor, ids: Tensor | None = None) -> None:
        self.embedding, self.rows, self.ids = embedding, rows, ids
        self.vocab_size = len(embedding)

    @classmethod
    def of(cls, model: Any) -> SharedHead:
        """The head of a causal language model of transformers."""
        return cls(model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach())

    def restricted(self, ids: Tensor) -> SharedHead:
        """The same head, drafting only the tokens ``ids``, int64 [R] (paper, section 2.2, equation 3)."""
        ids = ids.to(self.rows.device)
        return SharedHead(self.embedding, self.rows[ids], ids)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of tokens int64 [...]: [..., d]."""
        return torch.nn.functional.embedding(tokens, self.embedding)

    def logits(self, states: Tensor) -> Tensor:
        return (states.to(self.rows.dtype) @ self.rows.T).float()

    def rows_of(self, tokens: Tensor) -> Tensor:
        """The rows of tokens, which must all have one: the inverse of `tokens_of`; ids must be ascending."""
        return tokens if self.ids is None else torch.searchsorted(self.ids, tokens)
