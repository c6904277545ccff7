"""Fixes for two bugs of vLLM's rejection sampler on a CPU, each applied only if the installed vLLM has the bug.

Both occur in vLLM 0.32 and 0.33 with every speculative method.  Other devices are unaffected.

- ``expand_batch_to_tokens`` returns uninitialized memory for float32 and int32 input, so sampling at a temperature
  above 0 is wrong.
- A step without draft tokens (every prefill) together with a top-k raises an error.

Without draft tokens it also draws random numbers that nothing reads, which is left out.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(f"vllm.{__name__}")


def install(sampler: Any) -> None:
    """Wrap both functions.  Call it only on a CPU.

    Args:
        sampler: vLLM's module ``vllm.v1.sample.rejection_sampler``.
    """
    logger.info("mtpc-plugins fixes sampling with draft tokens on a CPU, for every speculative method.")
    sampler.expand_batch_to_tokens = _guard_expand(sampler.expand_batch_to_tokens)
    sampler.apply_sampling_constraints = _guard_constraints(sampler.apply_sampling_constraints)
    sampler.sample_recovered_tokens = _guard_recovered(sampler.sample_recovered_tokens)


def expand(x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Tensor:
    """Repeat per-request values for each token, as ``expand_batch_to_tokens`` is documented to do.

    Args:
        x: [B].
        cu_num_tokens: int32 [B], cumulative number of tokens.
        num_tokens: Their total, T.
        replace_from: Value of ``x`` to replace before.
        replace_to: The value that replaces it.

    Returns:
        [T], in the type of ``x``.
    """
    if replace_from != replace_to:
        x = x.masked_fill(x == replace_from, replace_to)
    if len(x) == 1:
        return x.repeat(num_tokens)
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    return x.repeat_interleave(counts.long(), output_size=num_tokens)


def _guard_expand(original: Any) -> Any:
    """Return ``original`` if it is correct on a known input at the first call, else `expand`."""

    @functools.cache
    def is_correct() -> bool:
        counts, example = torch.tensor([2, 5, 6], dtype=torch.int32), torch.tensor([0.3125, 0.0, 7.625])
        return torch.equal(original(example, counts, 6, 0, 1), expand(example, counts, 6, 0, 1))

    @functools.wraps(original)
    def expand_batch_to_tokens(
        x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Tensor:
        function = original if is_correct() else expand
        return function(x, cu_num_tokens, num_tokens, replace_from, replace_to)

    return expand_batch_to_tokens


def _guard_constraints(original: Any) -> Any:
    """Wrap ``original``: return logits without rows unchanged where it fails on them."""

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
