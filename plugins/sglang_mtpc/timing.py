"""Decoding steps of SGLang's target for nobody, so that what they cost can be timed while the server starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context


def step_of(runner: Any) -> Callable[[int], None]:
    """Return what runs SGLang's ``ModelRunner`` for so many tokens, of a request each, up to their logits.

    They are written where no request's are: SGLang keeps the first place of its pools free for that.
    """

    @torch.inference_mode()
    def step(tokens: int) -> None:
        nowhere = torch.zeros(tokens, dtype=torch.int64, device=runner.device)
        batch = ForwardBatch(
            forward_mode=ForwardMode.DECODE,
            batch_size=tokens,
            input_ids=nowhere,
            req_pool_indices=nowhere,
            seq_lens=nowhere + 1,
            seq_lens_cpu=torch.ones(tokens, dtype=torch.int64),
            out_cache_loc=nowhere,
            seq_lens_sum=tokens,
            positions=nowhere,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        runner.attn_backend.init_forward_metadata(batch)
        with forward_context(ForwardContext(attn_backend=runner.attn_backend)):
            runner.model.forward(nowhere, nowhere, batch)

    return step
