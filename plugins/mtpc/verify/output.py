"""The result of a verification rule, and the steps that the rules share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PADDING = -1  # in `VerifyOutput.tokens` after the last emitted token


class VerifyOutput(NamedTuple):
    """Result of verifying a chain of draft tokens.

    Attributes:
        accepted: int64 [B], accepted draft tokens, 0..K.
        tokens: int64 [B, K + 1], the accepted draft tokens, one token of the target (recovered after a rejection, the
            bonus token after K acceptances), then `PADDING`.
    """

    accepted: Tensor
    tokens: Tensor


def emit(drafts: Tensor, accepted: Tensor, last: Tensor) -> VerifyOutput:
    """Keep accepted draft tokens and append the last token.

    Args:
        drafts: int64 [B, K].
        accepted: int64 [B].
        last: int64 [B], one token of the target.

    Returns:
        The result.
    """
    position = torch.arange(drafts.shape[1] + 1, device=drafts.device)  # [K + 1]
    tokens = torch.cat([drafts, last[:, None]], 1)  # [B, K + 1]
    tokens = torch.where(position == accepted[:, None], last[:, None], tokens)
    return VerifyOutput(accepted, tokens.masked_fill(position > accepted[:, None], PADDING))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """Compute the residual distribution max(p - q, 0), normalized.

    Args:
        target: p, [..., V].
        draft: q, [..., V].

    Returns:
        [..., V]; p where p <= q everywhere, as no draft token is rejected there.
    """
    excess = (target - draft).clamp_min(0.0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass.clamp_min(torch.finfo(mass.dtype).tiny), target)


def probs_of_drafts(probabilities: Tensor, drafts: Tensor) -> Tensor:
    """Return the probability of each draft token, [B, K], from distributions [B, K or K + 1, V]."""
    return probabilities[:, : drafts.shape[1]].gather(-1, drafts[..., None])[..., 0]


def count_leading(flags: Tensor) -> Tensor:
    """Return how many flags [B, K] are set before the first that is not, int64 [B]."""
    return flags.to(torch.int64).cumprod(1).sum(1)
