"""What an autoregressive part is: the contract between its layers and what runs them, engines and reference alike.

`TargetInterface` is what a drafter's configuration states of it before there are weights: adapters choose by it what
they hand over.  `AutoregressivePart` is the module of the reference implementation; adapters build their own of the
engine's layers, and share `DrafterTokens` with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.target_head.shared import SharedHead

Cache = Literal["pages"]  # the engine's, in which each layer has keys and values of its own


class TargetInterface:
    """What an autoregressive part takes from its target, and what it brings itself.

    The defaults are those of layers that go on from the target's last state (EAGLE, FastMTP, Gumiho).
    """

    hidden_size: int
    vocab_size: int

    @property
    def state_below(self) -> int | None:
        """Which hidden state of the target it reads, and the parallel part behind it as the first.

        None: the last, after the final norm.  k >= 1: the one that the target's layer k reads, counted from 0, before
        any norm: the output of the k layers below it.
        """
        return None

    @property
    def has_own_embedding(self) -> bool:
        """Whether it embeds the target's tokens itself; otherwise with the target's embedding."""
        return False

    @property
    def own_vocabulary(self) -> int | None:
        """Tokens of its own output head, R, each of which stands for one of the target's.

        None: it drafts through the target's head, whole or restricted to a draft vocabulary.
        """
        return None

    @property
    def cache(self) -> Cache:
        """Where it keeps what it has read."""
        return "pages"


class DrafterTokens(nn.Module):
    """The embedding and the output head that a part brings itself; each may be None.

    Attributes:
        embedding: Of the target's V tokens.
        rows: Of the output head, [R, d].
        tokens: The target's token that each row stands for, ascending, int64 [R].
    """

    tokens: Tensor | None

    def __init__(self, hidden_size: int, vocab_size: int, embeds: bool, count: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size) if embeds else None
        self.rows = None if count is None else nn.Parameter(torch.zeros(count, hidden_size))
        self.register_buffer("tokens", None if count is None else torch.arange(count))

    @classmethod
    def of(cls, part: TargetInterface) -> Self | None:
        """Return those of a part; None: both are the target's."""
        if not part.has_own_embedding and part.own_vocabulary is None:
            return None
        return cls(part.hidden_size, part.vocab_size, part.has_own_embedding, part.own_vocabulary)

    def check_tokens(self, path: Path, vocab_size: int) -> None:
        """Check that every row stands for another token of the target, in their order.

        Raises:
            MTPCError: Otherwise; it names the file of the weights.
        """
        if self.tokens is None:
            return
        bounded = torch.cat([self.tokens.new_tensor([-1]), self.tokens, self.tokens.new_tensor([vocab_size])])
        if not bool((bounded.diff() > 0).all()):
            raise MTPCError(f"{path}: the drafter's tokens must be ascending numbers from 0 to {vocab_size - 1}.")


class AutoregressivePart(nn.Module, ABC):
    """Layers with attention that are applied once for each draft token.

    own: what they do not share with the target; None: they share both its embedding and its output head.
    """

    own: DrafterTokens | None

    @abstractmethod
    def inputs(self, embeddings: Tensor, previous: Tensor) -> Tensor:
        """Return what the layers read of each position, [..., d].

        Args:
            embeddings: Of the token after it, [..., d].
            previous: Its state, [..., d]: the target's (see `TargetInterface.state_below`), or that of the draft step
                before.
        """

    @abstractmethod
    def forward(
        self, embeddings: Tensor, previous: Tensor, positions: Tensor, mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Return the states after one draft step, [B, T, d].

        Args:
            embeddings: [B, T, d], see `inputs`.
            previous: [B, T, d].
            positions: int64 [B, T].
            mask: bool [B or 1, 1, T, S], which of the S keys (those in the cache come first) a position attends to;
                None, where no key is in the cache: those up to itself; where T is 1: all.
            cache: Of transformers; takes up the T new keys and values.
        """

    def head(self, target: SharedHead) -> SharedHead:
        """Return the embedding and the output head that it drafts with, given the target's."""
        if self.own is None:
            return target
        embedding = target.embedding if self.own.embedding is None else self.own.embedding.weight
        if self.own.rows is None:
            return SharedHead(embedding, target.rows, target.ids)
        return SharedHead(embedding, self.own.rows, self.own.tokens)
