"""The contract of an autoregressive part, between its layers and the engines or the reference implementation.

`TargetInterface` is the part that a configuration states before weights are loaded: adapters decide by it what to pass.
`AutoregressivePart` is the module of the reference implementation. Adapters build their own from the engine's layers
and share `DrafterTokens` with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.target_head.shared import SharedHead


class TargetInterface:
    """What an autoregressive part uses of its target, and what it brings itself.

    The defaults are those of layers that read the target's last state (EAGLE, FastMTP, Gumiho).

    Attributes:
        hidden_size: d of the target.
        vocab_size: V of the target.
    """

    hidden_size: int
    vocab_size: int

    @property
    def state_below(self) -> int | None:
        """The hidden state of the target that it reads; a parallel part behind it reads the same at its first position.

        None: the last state, after the final norm. k >= 1: the input of the target's layer k (counted from 0), before
        any norm.
        """
        return None

    @property
    def has_own_embedding(self) -> bool:
        """Whether it embeds tokens with its own table instead of the target's."""
        return False

    @property
    def own_vocabulary(self) -> int | None:
        """R, rows of its own output head, each of which stands for one token of the target.

        None: it drafts through the target's head, whole or restricted to a draft vocabulary.
        """
        return None

    @property
    def drafts(self) -> bool:
        """Whether it drafts tokens. Otherwise it makes one pass, whose output is the state for the parallel part."""
        return True

    @property
    def needs_layers(self) -> int | None:
        """L, the number of layers that the target must have; None: any."""
        return None


class DrafterTokens(nn.Module):
    """The embedding and output head that an autoregressive part brings itself; each may be None.

    Attributes:
        embedding: Embedding of the target's V tokens.
        rows: Rows of the output head, [R, d].
        tokens: The target's token of each row, ascending, int64 [R].

    Args:
        hidden_size: d.
        vocab_size: V.
        embeds: Whether there is an embedding.
        count: R; None: there is no output head.
    """

    tokens: Tensor | None

    def __init__(self, hidden_size: int, vocab_size: int, embeds: bool, count: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size) if embeds else None
        self.rows = None if count is None else nn.Parameter(torch.zeros(count, hidden_size))
        self.register_buffer("tokens", None if count is None else torch.arange(count))

    @classmethod
    def of(cls, part: TargetInterface) -> Self | None:
        """Build those of a configuration; None where embedding and output head are the target's."""
        if not part.has_own_embedding and part.own_vocabulary is None:
            return None
        return cls(part.hidden_size, part.vocab_size, part.has_own_embedding, part.own_vocabulary)

    def check_tokens(self, path: Path, vocab_size: int) -> None:
        """Check that the rows stand for different tokens of the target, in ascending order.

        Args:
            path: The file of the weights, for the error.
            vocab_size: V.

        Raises:
            MTPCError: Otherwise.
        """
        if self.tokens is None:
            return
        bounded = torch.cat([self.tokens.new_tensor([-1]), self.tokens, self.tokens.new_tensor([vocab_size])])
        if not bool((bounded.diff() > 0).all()):
            raise MTPCError(f"{path}: the drafter's tokens must be ascending numbers from 0 to {vocab_size - 1}.")


class AutoregressivePart(nn.Module, ABC):
    """Layers with attention that are applied once for each draft token, or once for the draft of the parallel part.

    The caller keeps the KV cache: each `forward` appends its T positions.

    Attributes:
        own: Embedding and output head that it does not share with the target; None: it shares both. The name is part of
            the names of tensors in checkpoints.
    """

    own: DrafterTokens | None

    @property
    def adapter_names(self) -> dict[str, str]:
        """Names in peft's files, by those in this module, of the adapters of the target's layers; empty without any."""
        return {}

    @abstractmethod
    def inputs(self, embeddings: Tensor, previous: Tensor) -> Tensor:
        """Project what the layers read at each position.

        Args:
            embeddings: Embedding of the token after the position, [..., d].
            previous: State of the position, [..., d]: the target's (see `TargetInterface.state_below`), or that of the
                previous draft step.

        Returns:
            [..., d].
        """

    @abstractmethod
    def forward(
        self, embeddings: Tensor, previous: Tensor, positions: Tensor, mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Run one draft step.

        Args:
            embeddings: [B, T, d], see `inputs`.
            previous: [B, T, d], see `inputs`.
            positions: int64 [B, T].
            mask: bool [B or 1, 1, T, S], which of the S keys (cached ones first) a position attends to. None: causal
                where the cache is empty, all keys where T is 1.
            cache: A cache of transformers, which gets the T new keys and values.

        Returns:
            States after the step, [B, T, d].
        """

    def head(self, target: SharedHead) -> SharedHead:
        """Return the embedding and output head that it drafts with, given the target's."""
        if self.own is None:
            return target
        embedding = target.embedding if self.own.embedding is None else self.own.embedding.weight
        if self.own.rows is None:
            return SharedHead(embedding, target.rows, target.ids)
        return SharedHead(embedding, self.own.rows, self.own.tokens)
