"""Speculative sampling where q is known for any single token, but costly over the whole vocabulary.

It is the verification of string-level rejection sampling (SLRS, algorithm 3 of arXiv:2502.05202, lines 5 to 10), with
the probabilities of `mtpc.vocabulary.token_trie` in place of psi. A draft token t is accepted with probability
min(1, p(t) / q(t)), which needs only its own q. After a rejection the residual r(t) = max(p(t) - q(t), 0) is drawn by
an exponential race. With independent E(t), the token of the largest r(t) / E(t) has probability r(t) / sum r.

The winner is found with q of few tokens. As r <= p, no token can exceed its bound p(t) / E(t). So the rule takes the
token of the largest number, and replaces its bound by r(t) / E(t). It stops where the largest number belongs to a token
whose r is known. That is the winner of the whole race, in whatever order tokens are tried. So the rule emits the same
token as with q of all tokens, and it ends after at most V of them.

Tokens are tried as if they were drawn from p without replacement. A draw from p is the residual's with probability
sum r = TV(p, q), which is also the probability of a rejection. So q of about one token is computed for each verified
position, on average.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mtpc.verify.output import VerifyOutput, count_leading, emit, probs_of_drafts
from mtpc.verify.rejection import acceptance_ratio


class DraftProbs(Protocol):
    """The drafter's distributions, computed when needed."""

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return q(token) for M requests, given the draft tokens before a position.

        Args:
            rows: int64 [M], the requests, all different.
            positions: int64 [M], a position of each, 0..K - 1.
            tokens: int64 [M], any tokens of the target.

        Returns:
            float64 [M].
        """


def verify_strings(
    drafts: Tensor, stated: Tensor, draft: DraftProbs, target: Tensor, accept_uniforms: Tensor, last_uniforms: Tensor
) -> VerifyOutput:
    """Verify draft tokens as `mtpc.verify.verify_rejection` does, without q over the vocabulary.

    Args:
        drafts: int64 [B, K].
        stated: q of each draft token, [B, K].
        draft: The drafter's distributions, of which ``stated`` are the values at ``drafts``.
        target: Target probabilities after each prefix of the draft, [B, K + 1, V].
        accept_uniforms: [B, K], in [0, 1).
        last_uniforms: [B, V], in [0, 1).

    Returns:
        Accepted and emitted tokens, distributed as the target's for any draft distribution.
    """
    accepted = count_leading(accept_uniforms.double() < acceptance_ratio(probs_of_drafts(target, drafts), stated))
    every = torch.arange(len(drafts), device=drafts.device)
    probs = target[every, accepted].double()  # [B, V]
    times = -torch.log1p(-last_uniforms.double()).clamp_max(-torch.finfo(torch.float64).tiny)
    scores = probs / times
    rows = every[accepted < drafts.shape[1]]  # the last token of these is of the residual
    rejected = drafts[rows, accepted[rows]]
    excess = probs[rows, rejected] - stated[rows, accepted[rows]].double()
    scores[rows, rejected] = excess.clamp_min(0.0) / times[rows, rejected]
    known = torch.zeros_like(scores, dtype=torch.bool)
    known[rows, rejected] = True
    last = scores.argmax(1)
    while len(rows):
        tokens = last[rows]
        excess = probs[rows, tokens] - draft.of(rows, accepted[rows], tokens)
        scores[rows, tokens] = excess.clamp_min(0.0) / times[rows, tokens]
        known[rows, tokens] = True
        last[rows] = scores[rows].argmax(1)
        rows = rows[~known[rows, last[rows]]]
    # Where rounding leaves no residual, the target is sampled.
    rounded = scores.gather(1, last[:, None])[:, 0] <= 0
    last = torch.where(rounded, (probs / times).argmax(1), last)
    return emit(drafts, accepted, last)
