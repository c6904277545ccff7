"""Greedy verification: a draft token is accepted while it is the target's most probable token (Stern et al. 2018)."""

from __future__ import annotations

from torch import Tensor

from mtpc.verify.output import VerifyOutput, count_leading, emit


def verify_greedy(drafts: Tensor, target: Tensor) -> VerifyOutput:
    """Accept draft tokens up to the first mismatch, then emit the target's choice.

    The emitted tokens are those of greedy decoding without a drafter.

    Args:
        drafts: int64 [B, K].
        target: Logits or probabilities after each prefix of the draft, [B, K + 1, V].

    Returns:
        Accepted and emitted tokens.
    """
    best = target.argmax(-1)  # [B, K + 1]
    accepted = count_leading(drafts == best[:, :-1])
    return emit(drafts, accepted, best.gather(1, accepted[:, None])[:, 0])
