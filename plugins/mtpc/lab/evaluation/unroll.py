"""Teacher-forced draft steps: K recursive steps of an autoregressive part at all positions of a text at once.

Position i starts from the target's hidden state h_i. Step k reads the state of the previous step and the embedding of
t_{i+k}, and predicts t_{i+k+1} (FastMTP, section 2.1). Positions count from 0. Attention is that of an engine: a step
attends to the keys of the first step up to i. It also attends to the later steps from the same start, at positions
i, i + 1, ... In the training of FastMTP's authors it attends to the same step of earlier starts instead, whose keys an
engine does not have.

The states therefore equal those of drafting from i whenever the draft tokens agree with the text. From the second step
on, a start does not depend on other starts, so steps can be computed for some starts alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.autoregressive.part import AutoregressivePart
from mtpc.target_head.shared import SharedHead


def unroll(
    layer: AutoregressivePart,
    head: SharedHead,
    hidden: Tensor,
    tokens: Tensor,
    steps: int,
    chosen: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yield the states after each of K draft steps.

    Args:
        layer: Autoregressive part.
        head: Output head, whose embeddings are read.
        hidden: Hidden states of the target of the first T tokens, [B, T, d].
        tokens: Token ids, int64 [B, at least T + K]. They may be padded on the right.
        steps: Draft steps K.
        chosen: Mask of the starts to compute, bool [B, T]. None computes all. States of other starts are undefined
            from the second step on.

    Yields:
        States [B, T, d] of step k = 1..K, which predict tokens[:, k + 1 : k + 1 + T].
    """
    length = hidden.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
    starts = torch.arange(length, device=hidden.device).expand(hidden.shape[:2])  # [B, m], the computed starts
    cache, mask, state = DynamicCache(), causal[None], hidden
    for step in range(1, steps + 1):
        embeddings = head.embed(tokens.gather(1, starts + step)).to(state.dtype)
        state = layer(embeddings, state, starts + step - 1, mask[:, None], cache)
        yield state if chosen is None or step == 1 else _scatter_starts(state, starts, length)
        if step == 1 and chosen is not None:
            count = int(chosen.sum(1).max())
            starts = chosen.long().sort(dim=1, descending=True, stable=True).indices[:, :count]
            state = state.gather(1, starts[..., None].expand(-1, -1, state.shape[2]))
        earlier = causal[starts] if step == 1 else mask
        same = torch.eye(starts.shape[1], dtype=torch.bool, device=hidden.device).expand(len(starts), -1, -1)
        mask = torch.cat([earlier, same], 2)  # [B, m, T + k m]


def _scatter_starts(state: Tensor, starts: Tensor, length: int) -> Tensor:
    """Return [B, T, d] with states [B, m, d] at their starts and zero elsewhere."""
    return state.new_zeros(len(state), length, state.shape[2]).scatter(
        1, starts[..., None].expand(-1, -1, state.shape[2]), state
    )
