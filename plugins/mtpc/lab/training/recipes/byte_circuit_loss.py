"""Training loss of byte circuits: the likelihood of the symbols of the next tokens (MTPC paper, equation 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.params import token_evidence
from mtpc.draft import DraftContext
from mtpc.parallel.byte_part import ByteCircuitPart


def spelling_losses(part: ByteCircuitPart, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return -log q(symbols of x_{t+1+k} | symbols before, h_t) of the tokens after x_{t+1}.

    Symbols beyond the circuit's window count nothing. q is the circuit's own distribution, before it is renormalized
    over the branches of the vocabulary's trie.

    Args:
        part: Circuit in training.
        hidden: Hidden states h_t of the target, [B, d].
        tokens: x_{t+1}..x_{t+1+K}, int64 [B, K + 1].

    Returns:
        Losses in nats, float32 [B, K].
    """
    params = part.params(DraftContext.of_target(hidden, tokens[:, 0]))
    text = part.byte_vocabulary.begin(tokens[:, 0])
    ends = [text.length]
    for following in tokens[:, 1:].unbind(1):
        text = part.byte_vocabulary.follow(text, following)
        ends.append(text.length)
    evidence = token_evidence(params.leaves, text.symbols).masked_fill(~text.known[..., None], 0.0)
    prefixes = torch.logsumexp(part.circuit.beliefs(params.sums, evidence) + evidence, -1)  # [B, n]
    return -prefixes.gather(1, torch.stack(ends, 1) - 1).diff(dim=1)
