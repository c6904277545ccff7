"""The two sampling rules with their uniforms integrated out."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.verify import rejection
from tests.oracles import block_verification as block


def rejection_rule(drafts: Tensor, draft: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Stops at the first rejection."""
    accept = rejection.acceptance_probabilities(drafts, draft, target)
    ones = torch.ones_like(target[:, :1, 0])
    reach, stop = torch.cat([ones, accept.cumprod(1)], 1), torch.cat([1.0 - accept, ones], 1)
    after = [torch.full((len(drafts),), accepted) for accepted in range(drafts.shape[1] + 1)]
    last = [rejection.last_token_probabilities(draft, target, accepted) for accepted in after]
    return reach * stop, torch.stack(last, 1)


def block_rule(drafts: Tensor, draft: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Keeps the longest prefix that passes: it passes, and none of the longer ones does."""
    weights = block.block_weights(drafts, draft, target)
    passes = block.block_acceptance(weights, draft, target)
    ones = torch.ones_like(target[:, :1, 0])
    none_longer = torch.cat([(1.0 - passes).flip(1).cumprod(1).flip(1), ones], 1)
    return torch.cat([ones, passes], 1) * none_longer, block.last_token_probabilities(weights, draft, target)


RULES = {"rejection": rejection_rule, "block": block_rule}
