"""K recursive steps of a serial layer at all positions of a text at once, each step given the text so far.

Position i starts from the target's hidden state h_i.  Step k reads the state of the step before and the embedding of
t_{i+k}, and predicts t_{i+k+1} (FastMTP paper, section 2.1; positions here count from 0).  What a step attends to:

- "served": what it attends to when an engine drafts from i: the keys of the first step up to i, then those of its own
  start's steps, at the positions i, i + 1, ... that they take there;
- "paper": the keys of the same step up to i, at the position i, as the authors' training does. An engine has
  no such keys, so training and serving differ.

With "served" the states are exactly those of drafting from i whenever the drafts agree with the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.serial.attention import Attention
from mtpc.serial.layer import SerialLayer
from mtpc.target_head.shared import SharedHead


def unroll(
    layer: SerialLayer, head: SharedHead, hidden: Tensor, tokens: Tensor, steps: int, attention: Attention = "served"
) -> Iterator[Tensor]:
    """The states after each of K steps, [B, T, d] each; step k's predict tokens[:, k + 1 : k + 1 + T].

    hidden: [B, T, d], the target's states of the first T tokens, after its final norm.  tokens: int64 [B, at least
    T + K].  Rows may be padded on the right.
    """
    length = hidden.shape[1]
    positions = torch.arange(length, device=hidden.device)[None]
    causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
    own = torch.eye(length, dtype=torch.bool, device=hidden.device)
    cache = DynamicCache() if attention == "served" else None
    mask, state = causal, hidden
    for step in range(1, steps + 1):
        embeddings = head.embed(tokens[:, step : step + length]).to(state.dtype)
        state = layer(embeddings, state, positions, mask[None, None], cache)
        yield state
        if attention == "served":
            positions, mask = positions + 1, torch.cat([mask, own], 1)  # [T, (k + 1) T]
