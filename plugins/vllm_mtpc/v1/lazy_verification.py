"""Verification of drafts whose distributions are computed when needed, on vLLM's V1 runner.

vLLM carries distributions from the proposer to the rejection sampler, row by row for the requests that are still there.
Where a text part drafts lazily, a row holds two numbers instead: the request's index in the draft, and q of its token.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.draft_model.part import LazyProbs
from mtpc.verify import PADDING, verify_strings

ROW = 2  # numbers of a row


class LastDraft:
    """What the proposer has drafted last.

    Attributes:
        lazy: Its distributions; None where they are dense, or there is no draft.
    """

    lazy: LazyProbs | None = None


LAST_DRAFT = LastDraft()


def install(sampler: Any) -> None:
    """Wrap the function that verifies drafts.

    Args:
        sampler: vLLM's module ``vllm.v1.sample.rejection_sampler``.
    """
    original = sampler.rejection_sample

    @functools.wraps(original)
    def rejection_sample(
        draft_token_ids: Tensor, num_draft_tokens: list[int], max_spec_len: int, cu_num_draft_tokens: Tensor,
        draft_probs: Tensor | None, target_logits: Tensor, bonus_token_ids: Tensor, sampling_metadata: Any,
        *others: Any, **named: Any,
    ) -> Tensor:  # fmt: skip
        if draft_probs is None or draft_probs.shape[1] != ROW or sampling_metadata.all_greedy:
            return original(
                draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_logits,
                bonus_token_ids, sampling_metadata, *others, **named,
            )  # fmt: skip
        generators = sampling_metadata.generators
        uniforms = sampler.generate_uniform_probs(
            len(draft_token_ids), num_draft_tokens, generators, target_logits.device
        )
        probs = _target_probs(target_logits, num_draft_tokens, sampling_metadata)
        return _verify(draft_token_ids, num_draft_tokens, draft_probs, probs, bonus_token_ids, uniforms, generators)

    sampler.rejection_sample = rejection_sample


def lazy_rows(stated: Tensor, rows: Sequence[int], size: int) -> Tensor:
    """Return what the runner carries in the place of distributions.

    Args:
        stated: q of each draft token, float64 [n, W].
        rows: Indices in the batch of the n requests with a draft.
        size: Requests of the batch.

    Returns:
        float64 [size, W, 2].
    """
    carried = stated.new_zeros(size, stated.shape[1], ROW)
    carried[list(rows)] = torch.stack([torch.arange(len(rows))[:, None].expand_as(stated), stated], -1)
    return carried


def _target_probs(logits: Tensor, counts: list[int], metadata: Any) -> Tensor:
    """Return the target's distribution at each draft token, float32 [T, V]; one-hot for greedy requests."""
    probs = logits.softmax(-1, dtype=torch.float32)
    if metadata.all_random:
        return probs
    greedy = (metadata.temperature == 0).repeat_interleave(torch.tensor(counts, device=logits.device))
    best = torch.zeros_like(probs).scatter_(1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.where(greedy[:, None], best, probs)


class _OfBatch:
    """The distributions of the last draft, by a request's index in the batch."""

    def __init__(self, indices: Tensor) -> None:
        self.indices = indices

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """See `DraftProbs.of`."""
        assert LAST_DRAFT.lazy is not None
        return LAST_DRAFT.lazy.of(self.indices[rows], positions, tokens).to(tokens.device)


def _verify(
    drafts: Tensor, counts: list[int], carried: Tensor, probs: Tensor, bonus: Tensor, uniforms: Tensor,
    generators: dict[int, torch.Generator],
) -> Tensor:  # fmt: skip
    """Verify T draft tokens of B requests as ``rejection_sample`` does, int32 [B, K + 1].

    After the end of its draft a request's tokens are the bonus token, which is certain there.
    """
    size, width, device = len(counts), max(counts), probs.device
    numbers = torch.tensor(counts, device=device)
    used = torch.arange(width, device=device) < numbers[:, None]  # [B, K], in the order of the T
    tokens = bonus.long().repeat(1, width)
    tokens[used] = drafts.long()
    stated = torch.ones(size, width, dtype=torch.float64, device=device)
    stated[used] = carried[:, 1]
    accept = torch.zeros_like(stated)
    accept[used] = uniforms
    indices = torch.zeros_like(tokens)
    indices[used] = carried[:, 0].long()
    target = probs.new_zeros(size, width + 1, probs.shape[1])
    target.scatter_(2, bonus.long()[:, None].expand(size, width + 1, 1), 1.0)
    target[:, :width][used] = probs
    last = torch.rand(size, probs.shape[1], dtype=torch.float64, device=device)
    for row, generator in generators.items():
        if counts[row]:
            last[row].uniform_(generator=generator)
    emitted = verify_strings(tokens, stated, _OfBatch(indices[:, 0]), target, accept, last).tokens
    return emitted.masked_fill(torch.arange(width + 1, device=device) > numbers[:, None], PADDING).int()
