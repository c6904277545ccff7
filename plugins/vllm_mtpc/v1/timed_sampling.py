"""vLLM's sampling and rejection sampling of random logits, so that draft lengths are chosen by what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from mtpc.draft_length.cost import Sampling


def sampling_of(runner: Any, most_tokens: int, draft: Callable[[int], object] | None) -> Sampling:
    """Return vLLM's sampling and rejection sampling of random logits, so that their cost can be timed.

    Args:
        runner: vLLM's model runner, while it holds no request.
        most_tokens: Largest number of tokens that are sampled or verified together.
        draft: Draws the whole drafts of a number of requests; None: the drafter has none of its own.
    """
    device, vocab_size = runner.device, runner.model_config.get_vocab_size()
    logits = torch.randn(most_tokens, vocab_size, dtype=runner.model_config.dtype, device=device)
    probs = torch.full((most_tokens, vocab_size), 1 / vocab_size, device=device)

    def metadata(requests: int) -> Any:
        emitted: list[list[int]] = [[] for _ in range(requests)]
        return replace(
            runner.input_batch.sampling_metadata,
            temperature=torch.ones(requests, device=device),
            all_greedy=False,
            all_random=True,
            output_token_ids=emitted,
        )

    def sample(requests: int) -> None:
        runner.sampler(logits=logits[:requests].clone(), sampling_metadata=metadata(requests))

    def verify(tokens: int) -> None:
        drafts = SpecDecodeMetadata.make_dummy([[0] * (tokens - 1)], device)
        runner.rejection_sampler(drafts, probs[: tokens - 1], logits[:tokens].clone(), metadata(1))

    return Sampling(sample, verify, draft)
