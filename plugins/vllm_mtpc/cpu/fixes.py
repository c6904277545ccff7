"""Mends for two faults of vLLM's rejection sampler on a CPU, each applied only where the fault shows.

Seen in vLLM 0.32 and 0.33, with every speculative method: ``expand_batch_to_tokens`` returns uninitialised memory
for float32 and int32 input, so sampling at a temperature above 0 is wrong; and a step without drafts (every
prefill) together with a top-k raises an error.  Such a step also draws random numbers that nothing reads.  On other
devices nothing is touched.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(f"vllm.{__name__}")


def install(sampler: Any) -> None:
    """Put both functions of the module ``vllm.v1.sample.rejection_sampler`` under guard; this is a CPU."""
    logger.info("mtpc-plugins fixes sampling with draft tokens on a CPU, for every speculative method.")
    sampler.expand_batch_to_tokens = _guard_expand(sampler.expand_batch_to_tokens)
    sampler.apply_sampling_constraints = _guard_constraints(sampler.apply_sampling_constraints)
    sampler.sample_recovered_tokens = _guard_recovered(sampler.sample_recovered_tokens)


def expand(x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Tensor:
    """What ``expand_batch_to_tokens`` is documented to do: x [B] repeated by the counts behind cu_num_tokens [B]."""
    if replace_from != replace_to:
        x = x.masked_fill(x == replace_from, replace_to)
    if len(x) == 1:
        return x.repeat(num_tokens)
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    return x.repeat_interleave(counts.long(), output_size=num_tokens)


def _guard_expand(original: Any) -> Any:
    """``original`` if it computes what it should, else `expand`; tried at the first call, on known input."""

    @functools.cache
    def sound() -> bool:
        counts, example = torch.tensor([2, 5, 6], dtype=torch.int32), torch.tensor([0.3125, 0.0, 7.625])
        return torch.equal(original(example, counts, 6, 0, 1), expand(example, counts, 6, 0, 1))

    @functools.wraps(original)
    def expand_batch_to_tokens(
        x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Tensor:
        function = original if sound() else expand
        return function(x, cu_num_tokens, num_tokens, replace_from, replace_to)

    return expand_batch_to_tokens


def _guard_constraints(original: Any) -> Any:
    """``original``, except that logits without rows come back as they are where that is an error."""

    @functools.wraps(original)
    def apply_sampling_constraints(logits: Tensor, *others: Any, **named: Any) -> Tensor:
        try:
            return original(logits, *others, **named)
        except RuntimeError:
            if logits.shape[0]:
                raise
            return logits

    return apply_sampling_constraints


def _guard_recovered(original: Any) -> Any:
    """Return ``original``, which is left out where no draft can be rejected.

    For every request it draws V random numbers: 8% of a step of 16 requests with 49,152 tokens each.
    """

    @functools.wraps(original)
    def sample_recovered_tokens(
        max_spec_len: int, num_draft_tokens: list[int], cu_num_draft_tokens: Tensor, draft_token_ids: Tensor,
        *others: Any, **named: Any,
    ) -> Tensor:  # fmt: skip
        if not draft_token_ids.numel():
            return torch.empty_like(draft_token_ids)
        return original(max_spec_len, num_draft_tokens, cu_num_draft_tokens, draft_token_ids, *others, **named)

    return sample_recovered_tokens
