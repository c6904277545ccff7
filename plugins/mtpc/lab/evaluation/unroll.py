"""K recursive steps of a draft layer at all positions of a text at once, each step given the text so far.

Position i starts from the target's hidden state h_i.  Step k reads the state of the step before and the embedding of
t_{i+k}, and predicts t_{i+k+1} (FastMTP paper, section 2.1; positions here count from 0).  What a step attends to:

- "served": what it attends to when an engine drafts from i: the keys of the first step up to i, then those of its own
  start's steps, at the positions i, i + 1, ... that they take there;
- "paper": the keys of the same step up to i, at the position i, as the authors' training does. An engine has
  no such keys, so training and serving differ.

With "served" the states are exactly those of drafting from i whenever the drafts agree with the text; from the second
step on a start needs nothing of the others, so that they can be computed for some starts alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.autoregressive.part import AutoregressivePart
from mtpc.lab.evaluation.attention import Attention
from mtpc.target_head.shared import SharedHead


def unroll(
    layer: AutoregressivePart,
    head: SharedHead,
    hidden: Tensor,
    tokens: Tensor,
    steps: int,
    attention: Attention = "served",
    chosen: Tensor | None = None,
) -> Iterator[Tensor]:
    """The states after each of K steps, [B, T, d] each; step k's predict tokens[:, k + 1 : k + 1 + T].

    hidden: [B, T, d], the target's states of the first T tokens that the layer reads.  tokens: int64 [B, at least
    T + K].  Rows may be padded on the right.  chosen: bool [B, T], the starts whose states are read; with "served"
    those of other starts may be anything from the second step on.  None: all.
    """
    length = hidden.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
    starts = torch.arange(length, device=hidden.device).expand(hidden.shape[:2])  # [B, m], those that are computed
    cache = DynamicCache() if attention == "served" else None
    mask, state = causal[None], hidden
    for step in range(1, steps + 1):
        embeddings = head.embed(tokens.gather(1, starts + step)).to(state.dtype)
        positions = starts if cache is None else starts + step - 1
        state = layer(embeddings, state, positions, mask[:, None], cache)
        yield state if chosen is None or step == 1 or cache is None else _scatter_starts(state, starts, length)
        if cache is not None:
            if step == 1 and chosen is not None:
                count = int(chosen.sum(1).max())
                starts = chosen.long().sort(dim=1, descending=True, stable=True).indices[:, :count]
                state = state.gather(1, starts[..., None].expand(-1, -1, state.shape[2]))
            seen = causal[starts] if step == 1 else mask
            own = torch.eye(starts.shape[1], dtype=torch.bool, device=hidden.device).expand(len(starts), -1, -1)
            mask = torch.cat([seen, own], 2)  # [B, m, T + k m]


def _scatter_starts(state: Tensor, starts: Tensor, length: int) -> Tensor:
    """States [B, m, d] of some starts at the places of all, [B, T, d]; zero elsewhere."""
    return state.new_zeros(len(state), length, state.shape[2]).scatter(
        1, starts[..., None].expand(-1, -1, state.shape[2]), state
    )
