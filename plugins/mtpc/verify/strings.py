"""Speculative sampling where q is known for any single token, but costly over the whole vocabulary.

It is the verification of string-level rejection sampling (SLRS, algorithm 3 of arXiv:2502.05202, lines 5 to 10), with
the probabilities of `mtpc.vocabulary.token_trie` in place of psi. A draft token t is accepted with probability
min(1, p(t) / q(t)), which needs only its own q. The residual max(p - q, 0) is drawn without q of all tokens: draw t'
from p, keep it with probability max(0, 1 - q(t') / p(t')), else draw again. Each draw is kept with probability

    sum_t p(t) max(0, 1 - q(t) / p(t)) = sum_t max(p(t) - q(t), 0) = TV(p, q),

and a kept token is distributed as the residual. So after a rejection 1 / TV draws are expected. A rejection itself has
probability TV, so each verified position costs one draw on average, whatever p and q are. The loop is bounded: after n
draws that were not kept, q of the whole vocabulary is computed and the residual drawn from it, which keeps the output
exact. That has probability TV (1 - TV)^n, at most 1 / (e n): 1.2% for n = 32.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mtpc.draw import draw
from mtpc.verify.output import VerifyOutput, count_leading, emit, probs_of_drafts, residual
from mtpc.verify.rejection import acceptance_ratio


class DraftProbs(Protocol):
    """The drafter's distributions, computed when needed. Each is given the draft tokens before its position."""

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return q(token) for M requests.

        Args:
            rows: int64 [M], the requests.
            positions: int64 [M], a position of each, 0..K - 1.
            tokens: int64 [M], any tokens of the target.

        Returns:
            float64 [M].
        """

    def all(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Return q over the vocabulary, float64 [M, V]; arguments as for `of`."""


def keep_probabilities(target: Tensor, draft: Tensor) -> Tensor:
    """Return max(0, 1 - q / p), float64: the probability that a token drawn from p is one of the residual.

    Args:
        target: p of each token, [...], positive.
        draft: q of each token, [...].
    """
    return (1.0 - draft.double() / target.double()).clamp_min(0.0)


def verify_strings(
    drafts: Tensor,
    stated: Tensor,
    draft: DraftProbs,
    target: Tensor,
    accept_uniforms: Tensor,
    draw_uniforms: Tensor,
    keep_uniforms: Tensor,
) -> VerifyOutput:
    """Verify draft tokens as `mtpc.verify.verify_rejection` does, without q over the vocabulary.

    Args:
        drafts: int64 [B, K].
        stated: q of each draft token, [B, K].
        draft: The drafter's distributions, of which ``stated`` are the values at ``drafts``.
        target: Target probabilities after each prefix of the draft, [B, K + 1, V].
        accept_uniforms: [B, K], in [0, 1).
        draw_uniforms: [B, n + 1], in [0, 1), for at most n draws of a residual, and the last one.
        keep_uniforms: [B, n], in [0, 1).

    Returns:
        Accepted and emitted tokens, distributed as the target's for any draft distribution.
    """
    ratio = acceptance_ratio(probs_of_drafts(target, drafts), stated)  # [B, K]
    accepted = count_leading(accept_uniforms.double() < ratio)
    every = torch.arange(len(drafts), device=drafts.device)
    probs = target[every, accepted].double()  # [B, V]
    last = draw(probs, draw_uniforms[:, 0])
    rows = every[accepted < drafts.shape[1]]  # of these the last token is of the residual
    for step in range(keep_uniforms.shape[1]):
        if not len(rows):
            break
        last[rows] = tokens = draw(probs[rows], draw_uniforms[rows, step])
        keep = keep_probabilities(probs[rows, tokens], draft.of(rows, accepted[rows], tokens))
        rows = rows[keep_uniforms[rows, step].double() >= keep]
    if len(rows):
        excess = residual(probs[rows], draft.all(rows, accepted[rows]).double())
        last[rows] = draw(excess, draw_uniforms[rows, -1])
    return emit(drafts, accepted, last)
