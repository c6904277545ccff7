"""Drafting with a key-value cache, as an engine does it (FastMTP paper, section 2.3), for texts of equal length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache

from mtpc.circuits.params import draw
from mtpc.drafter import Draft
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer


class DraftSession:
    """The keys and values of what the target has verified, and drafts that go on from there.

    The cache holds one entry for each position whose state the target has computed and whose next token is known.
    Entries of drafts are made on the way and dropped again: what becomes of a draft is the target's to say.
    """

    def __init__(self, layer: MTPLayer, head: SharedHead) -> None:
        self.layer, self.head = layer, head
        self.cache = DynamicCache()
        self.length = 0

    def draft(
        self, hidden: Tensor, tokens: Tensor, num_drafts: int, temperature: float = 0.0, noise: Tensor | None = None
    ) -> Draft:
        """Take up new positions and draft K tokens after the last of them.

        hidden: [B, m, d], the target's states of the m positions after those taken up before.  tokens: int64 [B, m],
        the token after each; the last is the one that the target has just emitted.  temperature: 0 drafts greedily,
        with no probabilities; else noise, uniforms [B, K] in [0, 1), draws from softmax(logits / temperature), which is
        returned as float32 [B, K, V].
        """
        state = self._step(hidden, tokens)[:, -1:]
        self.length += hidden.shape[1]
        drafts: list[Tensor] = []
        probs: list[Tensor] = []
        for step in range(num_drafts):
            if step:
                state = self._step(state, drafts[-1])
            logits = self.head.logits(state[:, 0])  # [B, R]
            if temperature == 0:
                choice = logits.argmax(-1)
            else:
                assert noise is not None  # part of the contract
                q = F.softmax(logits / temperature, -1)
                choice = draw(q, noise[:, step])
                probs.append(self.head.spread(q))
            drafts.append(self.head.tokens(choice)[:, None])
        self.cache.crop(self.length)
        return Draft(torch.cat(drafts, 1), torch.stack(probs, 1) if probs else None)

    def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """One application of the layer to m positions after those in the cache: [B, m, d]."""
        before, new = self.cache.get_seq_length(), tokens.shape[1]
        positions = torch.arange(before, before + new, device=tokens.device)
        seen = torch.arange(before + new, device=tokens.device) <= positions[:, None]  # [m, before + m]
        embeddings = self.head.embed(tokens).to(previous.dtype)
        return self.layer(embeddings, previous, positions[None], seen[None, None], self.cache)
