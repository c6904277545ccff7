"""Dummy decoding steps of SGLang's target, timed while the server starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context


def make_dummy_step(runner: Any) -> Callable[[int], None]:
    """Return a function that runs a decoding step with the given number of tokens, one for each request.

    Keys and values go to the first slot of the pools, which SGLang reserves for dummy tokens.

    Args:
        runner: SGLang's ``ModelRunner`` of the target.

    Returns:
        The function; it computes the logits and returns nothing.
    """

    @torch.inference_mode()
    def step(tokens: int) -> None:
        dummy = torch.zeros(tokens, dtype=torch.int64, device=runner.device)
        batch = ForwardBatch(
            forward_mode=ForwardMode.DECODE,
            batch_size=tokens,
            input_ids=dummy,
            req_pool_indices=dummy,
            seq_lens=dummy + 1,
            seq_lens_cpu=torch.ones(tokens, dtype=torch.int64),
            out_cache_loc=dummy,
            seq_lens_sum=tokens,
            positions=dummy,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        runner.attn_backend.init_forward_metadata(batch)
        with forward_context(ForwardContext(attn_backend=runner.attn_backend)):
            runner.model.forward(dummy, dummy, batch)

    return step
