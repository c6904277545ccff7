"""What a verification rule returns, and the steps that the rules share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PADDING = -1  # fills `VerifyOutput.tokens` after the last emitted token


class VerifyOutput(NamedTuple):
    """accepted: int64 [B], how many drafts were accepted, 0..K.

    tokens: int64 [B, K + 1], the accepted drafts, then one token of the target's (recovered after a rejection, the
    bonus token after K acceptances), then `PADDING`.
    """

    accepted: Tensor
    tokens: Tensor


def emit(drafts: Tensor, accepted: Tensor, last: Tensor) -> VerifyOutput:
    """The verdict that keeps `accepted` [B] of the drafts [B, K] and appends the token `last` [B]."""
    position = torch.arange(drafts.shape[1] + 1, device=drafts.device)  # [K + 1]
    tokens = torch.cat([drafts, last[:, None]], 1)  # [B, K + 1]
    tokens = torch.where(position == accepted[:, None], last[:, None], tokens)
    return VerifyOutput(accepted, tokens.masked_fill(position > accepted[:, None], PADDING))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """max(p - q, 0), normalised, [..., V]; p where p <= q everywhere (no draft is rejected there)."""
    excess = (target - draft).clamp_min(0.0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass.clamp_min(torch.finfo(mass.dtype).tiny), target)


def probs_of_drafts(probabilities: Tensor, drafts: Tensor) -> Tensor:
    """The probability of each draft, [B, K], out of [B, K or K + 1, V]."""
    return probabilities[:, : drafts.shape[1]].gather(-1, drafts[..., None])[..., 0]


def count_leading(flags: Tensor) -> Tensor:
    """How many of the flags [B, K] are set before the first that is not, int64 [B]."""
    return flags.to(torch.int64).cumprod(1).sum(1)
