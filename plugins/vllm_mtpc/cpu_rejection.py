"""vLLM's rejection sampling on a CPU, without a random number for every token of the vocabulary.

For the token after a rejected draft vLLM draws as many exponentials as the vocabulary has tokens, for every request and
also where nothing is rejected: of SmolLM2's 49,152 tokens 0.8 ms, in a step of some 18.  What is sampled has the same
distribution.  Requests with a seed, batches of which some are greedy, and rules other than rejection sampling, such as
vLLM 0.33's lossy one, are left to vLLM.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtpc.verify.ragged import verify_ragged
from mtpc.verify.verdict import PADDING


def install(sampler: Any) -> None:
    """Wrap ``rejection_sample`` of the module ``vllm.v1.sample.rejection_sampler``."""
    sampler.rejection_sample = _drawing_once(sampler.rejection_sample)


def _drawing_once(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def rejection_sample(
        draft_token_ids: Tensor,
        num_draft_tokens: list[int],
        max_spec_len: int,
        cu_num_draft_tokens: Tensor,
        draft_probs: Tensor | None,
        target_logits: Tensor,
        bonus_token_ids: Tensor,
        sampling_metadata: Any,
        synthetic_mode: bool = False,
        **named: Any,
    ) -> Tensor:
        another_rule = synthetic_mode or named.get("fly_window_size") is not None
        theirs = another_rule or not sampling_metadata.all_random or sampling_metadata.generators
        drafts = [] if theirs else draft_token_ids.tolist()
        if theirs or -1 in drafts:  # -1: no token
            return original(
                draft_token_ids,
                num_draft_tokens,
                max_spec_len,
                cu_num_draft_tokens,
                draft_probs,
                target_logits,
                bonus_token_ids,
                sampling_metadata,
                synthetic_mode=synthetic_mode,
                **named,
            )
        rows = len(num_draft_tokens)
        uniforms = torch.rand(len(drafts) + rows, dtype=torch.float64).split([len(drafts), rows])
        judged = verify_ragged(draft_token_ids.long(), num_draft_tokens, draft_probs, target_logits, *uniforms)
        said, start = [], 0
        for length, kept, last, bonus in zip(num_draft_tokens, *judged, bonus_token_ids[:, 0].tolist(), strict=True):
            row = [*drafts[start : start + kept], bonus if last is None else last]
            said.append(row + [PADDING] * (max_spec_len + 1 - len(row)))
            start += length
        return torch.tensor(said, dtype=torch.int32)

    return rejection_sample
